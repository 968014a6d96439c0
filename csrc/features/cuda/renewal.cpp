#include "features/cuda/renewal.h"

#include <algorithm>

#include "features/cuda/gather.h"
#include "features/cuda/renewal_kernels.h"
#include "gpu/all_kernels.h"
#include "gpu/kernel.h"

namespace loader {
namespace {

gpu::Shape shape(int64_t threads, int device, gpu::Stream stream) {
  // The bus is idle meanwhile, so all multiprocessors are taken: with half of them an epoch took 4 % longer.
  const int64_t most = gpu::attribute(device, gpu::Attribute::kMultiprocessors);
  const int64_t blocks = std::min((threads + kRenewalThreads - 1) / kRenewalThreads, most);
  return {static_cast<unsigned>(blocks), kRenewalThreads, 0, stream};
}

void launch(gpu::Kernel& kernel, int64_t threads, const RowCache& cache, const Reading& reading, int device,
            gpu::Stream stream) {
  gpu::launch<RowCache, Reading>(kernel, device, shape(threads, device, stream), cache, reading);
}

gpu::Kernel& exchange(const RowCache& cache, const Reading& reading) {
  const auto all = reinterpret_cast<uintptr_t>(cache.rows) | reinterpret_cast<uintptr_t>(reading.rows) |
                   static_cast<uintptr_t>(cache.row_bytes);
  if (all % 16 == 0) return gpu::kernel<ExchangeRows, gpu::Int<16>>();
  if (all % 4 == 0) return gpu::kernel<ExchangeRows, gpu::Int<4>>();
  return gpu::kernel<ExchangeRows, gpu::Int<1>>();
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

void launch_renewal(const RowCache& cache, const Reading& reading, int device, gpu::Stream stream) {
  if (reading.n == 0 || cache.count == 0 || cache.row_bytes == 0) return;
  gpu::Kernel& move = exchange(cache, reading);
  gpu::load(device,
            {&gpu::kernel<AdvanceUses>(), &gpu::kernel<CountClasses>(), &gpu::kernel<ChooseRows>(), &move});
  const int64_t candidates = reading.n + cache.count;
  launch(gpu::kernel<AdvanceUses>(), reading.n, cache, reading, device, stream);
  launch(gpu::kernel<CountClasses>(), candidates, cache, reading, device, stream);
  launch(gpu::kernel<ChooseRows>(), candidates, cache, reading, device, stream);
  const int64_t most = std::min<int64_t>(reading.n, cache.count);
  launch(move, most * kWarp, cache, reading, device, stream);
}

std::vector<gpu::Kernel*> renewal_kernels() {
  return {&gpu::kernel<ForgetUses>(),
          &gpu::kernel<NoteUses>(),
          &gpu::kernel<AdvanceUses>(),
          &gpu::kernel<CountClasses>(),
          &gpu::kernel<ChooseRows>(),
          &gpu::kernel<ExchangeRows, gpu::Int<16>>(),
          &gpu::kernel<ExchangeRows, gpu::Int<4>>(),
          &gpu::kernel<ExchangeRows, gpu::Int<1>>()};
}

}  // namespace loader
