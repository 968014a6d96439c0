// The launches of hops.h.
#include "layout/cuda/hops.h"

#include <algorithm>

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"

namespace loader {
namespace {

LOADER_KERNEL(MoveHops, "layout/cuda/hops.cuh", "move_hops")
LOADER_KERNEL(MapEntries, "layout/cuda/hops.cuh", "map_entries")
LOADER_KERNEL(EncodeTimes, "layout/cuda/hops.cuh", "encode_times")

gpu::Shape shape_of(int64_t threads, gpu::Stream stream) {
  return {gpu::blocks_for(threads, kLayoutThreads, "nodes, rows or entries"), kLayoutThreads, 0, stream};
}

}  // namespace

void launch_moved_hops(const MovedHops& args, int device, gpu::Stream stream) {
  const int64_t threads = std::max({args.nodes, args.rows + 1, args.entries});
  gpu::launch<MovedHops>(gpu::kernel<MoveHops>(), device, shape_of(threads, stream), args);
}

void launch_mapped_entries(const MappedEntries& args, int device, gpu::Stream stream) {
  const int64_t threads = std::max(args.nodes + 1, args.entries);
  gpu::launch<MappedEntries>(gpu::kernel<MapEntries>(), device, shape_of(threads, stream), args);
}

void launch_times_since(const TimesSince& args, int device, gpu::Stream stream) {
  if (args.nodes == 0) return;
  gpu::launch<TimesSince>(gpu::kernel<EncodeTimes>(), device, shape_of(args.nodes * 32, stream), args);
}

std::vector<gpu::Kernel*> layout_kernels() {
  return {&gpu::kernel<MoveHops>(), &gpu::kernel<MapEntries>(), &gpu::kernel<EncodeTimes>()};
}

}  // namespace loader
