// The launches of attend.h.
#include "attention/cuda/attend.h"

#include <algorithm>

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"
#include "gpu/narrow.h"

namespace loader {
namespace {

LOADER_KERNEL(AttendRows, "attention/cuda/attend.cuh", "attend_rows")              // <T>
LOADER_KERNEL(AttendRowsGradient, "attention/cuda/attend.cuh", "attend_gradient")  // <T>
LOADER_KERNEL(AttendSourceRows, "attention/cuda/attend.cuh", "attend_sources")     // <T>

constexpr int kWarps = kAttendThreads / 32;
constexpr int kBlocksAProcessor = 2;  // of the kernels whose threads have many registers

int64_t groups_of(int heads) { return (heads + kHeadsAtOnce - 1) / kHeadsAtOnce; }

int64_t blocks_at_once(int device) {
  return int64_t{gpu::attribute(device, gpu::Attribute::kMultiprocessors)} * kBlocksAProcessor;
}

}  // namespace

int64_t attend_parts(int64_t count, int device) {
  return std::min(blocks_at_once(device), (count + kWarps - 1) / kWarps);
}

template <typename T>
void launch_attend(const AttendForward<T>& args, int device, gpu::Stream stream) {
  if (args.count == 0) return;
  const int64_t items = std::min(args.count * groups_of(args.heads), blocks_at_once(device) * kWarps);
  const unsigned blocks = gpu::blocks_for(items, kWarps, "rows");
  gpu::launch<AttendForward<T>>(gpu::kernel<AttendRows, T>(), device, {blocks, kAttendThreads, 0, stream},
                                args);
}

template <typename T>
void launch_attend_gradient(const AttendBackward<T>& args, int device, gpu::Stream stream) {
  if (args.count == 0) return;
  const unsigned blocks = gpu::blocks_for(args.parts * groups_of(args.heads), 1, "parts");
  gpu::launch<AttendBackward<T>>(gpu::kernel<AttendRowsGradient, T>(), device,
                                 {blocks, kAttendThreads, 0, stream}, args);
}

template <typename T>
void launch_attend_sources(const AttendSources<T>& args, int device, gpu::Stream stream) {
  if (args.sources == 0) return;
  gpu::launch<AttendSources<T>>(gpu::kernel<AttendSourceRows, T>(), device,
                                {gpu::blocks_for(args.sources, kWarps, "sources"), kAttendThreads, 0, stream},
                                args);
}

template void launch_attend(const AttendForward<float>&, int, gpu::Stream);
template void launch_attend(const AttendForward<bfloat16>&, int, gpu::Stream);
template void launch_attend_gradient(const AttendBackward<float>&, int, gpu::Stream);
template void launch_attend_gradient(const AttendBackward<bfloat16>&, int, gpu::Stream);
template void launch_attend_sources(const AttendSources<float>&, int, gpu::Stream);
template void launch_attend_sources(const AttendSources<bfloat16>&, int, gpu::Stream);

std::vector<gpu::Kernel*> attention_kernels() {
  return {&gpu::kernel<AttendRows, float>(),         &gpu::kernel<AttendRows, bfloat16>(),
          &gpu::kernel<AttendRowsGradient, float>(), &gpu::kernel<AttendRowsGradient, bfloat16>(),
          &gpu::kernel<AttendSourceRows, float>(),   &gpu::kernel<AttendSourceRows, bfloat16>()};
}

}  // namespace loader
