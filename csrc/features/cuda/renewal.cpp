#include "features/cuda/renewal.h"

#include <algorithm>

#include "features/cuda/gather.h"
#include "features/cuda/renewal_kernels.h"
#include "gpu/all_kernels.h"
#include "gpu/fence.h"
#include "gpu/kernel.h"

namespace loader {
namespace {

gpu::Shape shape(int64_t threads, int device, gpu::Stream stream) {
  // All multiprocessors. With half of them an epoch took 4 % longer, when the bus still waited for the
  // renewal.
  const int64_t most = gpu::attribute(device, gpu::Attribute::kMultiprocessors);
  const int64_t blocks = std::min((threads + kRenewalThreads - 1) / kRenewalThreads, most);
  return {static_cast<unsigned>(blocks), kRenewalThreads, 0, stream};
}

void launch(gpu::Kernel& kernel, int64_t threads, const RowCache& cache, const Reading& reading, int device,
            gpu::Stream stream) {
  gpu::launch<RowCache, Reading>(kernel, device, shape(threads, device, stream), cache, reading);
}

gpu::Kernel& copy(const RowCache& cache, const Reading& reading) {
  const auto all = reinterpret_cast<uintptr_t>(cache.rows) | reinterpret_cast<uintptr_t>(reading.rows) |
                   static_cast<uintptr_t>(cache.row_bytes);
  if (all % 16 == 0) return gpu::kernel<CopyRows, gpu::Int<16>>();
  if (all % 4 == 0) return gpu::kernel<CopyRows, gpu::Int<4>>();
  return gpu::kernel<CopyRows, gpu::Int<1>>();
}

}  // namespace

void launch_forget_uses(const RowCache& cache, int device, gpu::Stream stream) {
  const int64_t words = (cache.num_rows + kUsesAWord - 1) / kUsesAWord;
  if (words == 0) return;
  gpu::launch<uint32_t*, int64_t>(gpu::kernel<ForgetUses>(), device, shape(words, device, stream),
                                  reinterpret_cast<uint32_t*>(cache.uses), words);
}

void launch_note_uses(const RowCache& cache, const Reading& reading, int device, gpu::Stream stream) {
  if (reading.n == 0) return;
  launch(gpu::kernel<NoteUses>(), reading.n, cache, reading, device, stream);
}

void launch_renewal(const RowCache& cache, const Reading& reading, int device, const RenewalStreams& streams,
                    gpu::Fence& fence) {
  if (reading.n == 0 || cache.count == 0 || cache.row_bytes == 0)
    return fence.between(streams.bus, streams.rows);
  gpu::Kernel& move = copy(cache, reading);
  gpu::load(device, {&gpu::kernel<AdvanceUses>(), &gpu::kernel<CountClasses>(), &gpu::kernel<ChooseRows>(),
                     &gpu::kernel<MoveSlots>(), &move});
  const int64_t candidates = reading.n + cache.count;
  const int64_t most = std::min<int64_t>(reading.n, cache.count);
  // The lists are those of the renewal before until its rows are copied, the slots those of this gather until
  // its cached rows are read.
  fence.between(streams.rows, streams.choice);
  launch(gpu::kernel<AdvanceUses>(), reading.n, cache, reading, device, streams.choice);
  launch(gpu::kernel<CountClasses>(), candidates, cache, reading, device, streams.choice);
  launch(gpu::kernel<ChooseRows>(), candidates, cache, reading, device, streams.choice);
  launch(gpu::kernel<MoveSlots>(), most, cache, reading, device, streams.choice);
  fence.between(streams.choice, streams.rows);
  fence.between(streams.bus, streams.rows);
  launch(move, most * kWarp, cache, reading, device, streams.rows);
}

std::vector<gpu::Kernel*> renewal_kernels() {
  return {&gpu::kernel<ForgetUses>(),
          &gpu::kernel<NoteUses>(),
          &gpu::kernel<AdvanceUses>(),
          &gpu::kernel<CountClasses>(),
          &gpu::kernel<ChooseRows>(),
          &gpu::kernel<MoveSlots>(),
          &gpu::kernel<CopyRows, gpu::Int<16>>(),
          &gpu::kernel<CopyRows, gpu::Int<4>>(),
          &gpu::kernel<CopyRows, gpu::Int<1>>()};
}

}  // namespace loader
