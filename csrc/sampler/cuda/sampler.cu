#include <cooperative_groups.h>

#include <algorithm>

#include "sampler/cuda/phases.cuh"
#include "sampler/cuda/sampler.h"

namespace loader {
namespace {

namespace cg = cooperative_groups;

// The widest row that a thread of this kernel picks in registers; kWide: a warp picks rows of any fanout.
constexpr int kWide = 0;

// One block of 16 warps a multiprocessor, with registers enough that nothing is spilled: a thread has a row's
// loads in flight at once, so more warps bring no more, and fewer blocks meet faster at the grid's barrier.
constexpr int kBlocksPerMultiprocessor = 1;

template <int Widest, typename N>
constexpr size_t stage_bytes() {
  return Widest == kWide ? kWarps * kMaxFanout * sizeof(uint32_t) : size_t{kBlock} * Widest * sizeof(N);
}

// Picks of one hop with the narrowest code that its fanout fits.
template <int Widest, typename P, typename N>
__device__ void pick_hop(const Phases<P, N>& phases, int hop, int64_t rows, int64_t edges,
                         unsigned char* stage) {
  const int fanout = phases.args.fanouts[hop - 1];
  auto* const entries = reinterpret_cast<N*>(stage);
  if constexpr (Widest == kWide) {
    if (fanout == kAllNeighbours)
      phases.pick_all(hop, rows, edges);
    else
      phases.pick_wide(hop, rows, reinterpret_cast<uint32_t*>(stage));
  } else {
    if (fanout <= 5) return phases.template pick<5>(hop, rows, entries);
    if constexpr (Widest > 5)
      if (fanout <= 10) return phases.template pick<10>(hop, rows, entries);
    if constexpr (Widest > 10)
      if (fanout <= 15) return phases.template pick<15>(hop, rows, entries);
    if constexpr (Widest > 15)
      if (fanout <= 20) return phases.template pick<20>(hop, rows, entries);
    if constexpr (Widest > 20) phases.template pick<32>(hop, rows, entries);
  }
}

// All hops in one launch, grid barriers between the phases.
template <int Widest, typename P, typename N>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    cooperative_kernel(const __grid_constant__ SampleArgs<P, N> args) {
  extern __shared__ __align__(16) unsigned char stage[];
  const Phases<P, N> phases(args);
  const cg::grid_group grid = cg::this_grid();
  phases.start();
  __syncwarp();
  int64_t rows = args.num_seeds, edges = 0;
  phases.count(0, rows);
  grid.sync();
  bool ok = *reinterpret_cast<volatile int64_t*>(&args.header->status) == 0;
  ok = ok && phases.assign(0, rows, edges);
  for (int hop = 1; ok && hop <= args.hops; ++hop) {
    grid.sync();
    pick_hop<Widest>(phases, hop, rows, edges, stage);
    grid.sync();
    phases.count(hop, rows);
    grid.sync();
    ok = phases.assign(hop, rows, edges);
  }
  grid.sync();
  if (blockIdx.x == 0 && threadIdx.x == 0) phases.finish();
  if (!ok) return phases.clean();
  for (int hop = 1; hop <= args.hops; ++hop) phases.relabel(hop, args.header->edges[hop - 1]);
}

// The same phases, a launch each: what a sampler without a grid barrier does.
template <typename P, typename N>
__global__ void __launch_bounds__(kBlock) start_kernel(const __grid_constant__ SampleArgs<P, N> args) {
  const Phases<P, N> phases(args);
  phases.start();
  __syncwarp();
  phases.count(0, args.num_seeds);
}

template <typename P, typename N>
__global__ void __launch_bounds__(kBlock)
    assign_kernel(const __grid_constant__ SampleArgs<P, N> args, int hop) {
  const Phases<P, N> phases(args);
  if (args.header->status != SampleStatus::kOk) return;
  int64_t rows = hop == 0 ? args.num_seeds : args.header->frontiers[hop - 1], edges = 0;
  phases.assign(hop, rows, edges);
}

template <int Widest, typename P, typename N>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    pick_kernel(const __grid_constant__ SampleArgs<P, N> args, int hop) {
  extern __shared__ __align__(16) unsigned char stage[];
  const Phases<P, N> phases(args);
  if (args.header->status != SampleStatus::kOk) return;
  pick_hop<Widest>(phases, hop, args.header->frontiers[hop - 1], args.header->edges[hop - 1], stage);
}

template <typename P, typename N>
__global__ void __launch_bounds__(kBlock)
    count_kernel(const __grid_constant__ SampleArgs<P, N> args, int hop) {
  const Phases<P, N> phases(args);
  if (args.header->status != SampleStatus::kOk) return;
  phases.count(hop, args.header->frontiers[hop - 1]);
}

template <typename P, typename N>
__global__ void __launch_bounds__(kBlock) relabel_kernel(const __grid_constant__ SampleArgs<P, N> args) {
  const Phases<P, N> phases(args);
  if (args.header->status != SampleStatus::kOk) return phases.clean();
  for (int hop = 1; hop <= args.hops; ++hop) phases.relabel(hop, args.header->edges[hop - 1]);
}

template <typename P, typename N>
__global__ void finish_kernel(const __grid_constant__ SampleArgs<P, N> args) {
  Phases<P, N>(args).finish();
}

template <int Widest, typename P, typename N>
cudaError_t launch_as(const SampleArgs<P, N>& args, Schedule schedule, int blocks_per_sm, int* launches,
                      cudaStream_t stream) {
  constexpr size_t shared = stage_bytes<Widest, N>();
  auto* const cooperative = cooperative_kernel<Widest, P, N>;
  auto* const pick = pick_kernel<Widest, P, N>;
  // Asked for once a device; a launch must not wait for the driver.
  constexpr int kMaxDevices = 64;
  static int multiprocessors[kMaxDevices], resident[kMaxDevices];
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  if (device >= kMaxDevices) return cudaErrorInvalidDevice;
  if (resident[device] == 0) {
    error = cudaDeviceGetAttribute(&multiprocessors[device], cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return error;
    error = cudaFuncSetAttribute(cooperative, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error != cudaSuccess) return error;
    error = cudaFuncSetAttribute(pick, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error != cudaSuccess) return error;
    int fit = 0;
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, cooperative, kBlock, shared);
    if (error != cudaSuccess) return error;
    if (fit == 0) return cudaErrorLaunchOutOfResources;
    resident[device] = fit;
  }
  const int wanted = blocks_per_sm > 0 ? blocks_per_sm : kBlocksPerMultiprocessor;
  const int blocks = std::min(std::min(wanted, resident[device]) * multiprocessors[device], kMaxBlocks);
  if (schedule == Schedule::kCooperative) {
    void* parameters[] = {const_cast<SampleArgs<P, N>*>(&args)};
    *launches = 1;
    return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(cooperative), dim3(blocks), dim3(kBlock),
                                       parameters, shared, stream);
  }
  start_kernel<<<blocks, kBlock, 0, stream>>>(args);
  assign_kernel<<<blocks, kBlock, 0, stream>>>(args, 0);
  for (int hop = 1; hop <= args.hops; ++hop) {
    pick<<<blocks, kBlock, shared, stream>>>(args, hop);
    count_kernel<<<blocks, kBlock, 0, stream>>>(args, hop);
    assign_kernel<<<blocks, kBlock, 0, stream>>>(args, hop);
  }
  relabel_kernel<<<blocks, kBlock, 0, stream>>>(args);
  finish_kernel<<<1, 1, 0, stream>>>(args);
  *launches = 4 + 3 * args.hops;
  return cudaGetLastError();
}

}  // namespace

int64_t workspace_totals() { return int64_t{3} * kMaxBlocks * (1 + kWarps); }

template <typename P, typename N>
cudaError_t launch_sample(const SampleArgs<P, N>& args, Schedule schedule, int blocks_per_sm, int* launches,
                          cudaStream_t stream) {
  int widest = 0;
  bool wide = false;
  for (int h = 0; h < args.hops; ++h) {
    wide |= args.fanouts[h] == kAllNeighbours || args.fanouts[h] > 32;
    widest = std::max(widest, args.fanouts[h]);
  }
  // Graphs of 2^31 vertices and more are rare: they do without the code for narrow rows, which is long to
  // compile.
  if constexpr (sizeof(N) == 4) {
    if (wide) return launch_as<kWide>(args, schedule, blocks_per_sm, launches, stream);
    if (widest <= 10) return launch_as<10>(args, schedule, blocks_per_sm, launches, stream);
    if (widest <= 15) return launch_as<15>(args, schedule, blocks_per_sm, launches, stream);
    if (widest <= 20) return launch_as<20>(args, schedule, blocks_per_sm, launches, stream);
    return launch_as<32>(args, schedule, blocks_per_sm, launches, stream);
  } else {
    return launch_as<kWide>(args, schedule, blocks_per_sm, launches, stream);
  }
}

template cudaError_t launch_sample(const SampleArgs<int32_t, int32_t>&, Schedule, int, int*, cudaStream_t);
template cudaError_t launch_sample(const SampleArgs<int64_t, int32_t>&, Schedule, int, int*, cudaStream_t);
template cudaError_t launch_sample(const SampleArgs<int64_t, int64_t>&, Schedule, int, int*, cudaStream_t);

}  // namespace loader
