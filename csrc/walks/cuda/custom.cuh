// Walks on the GPU by a user's function, a thread a walker (see walks/cuda/walk.cuh). NVRTC compiles it with
// the function, which comes as C++ (walks/custom/walker.h).
#pragma once

#include <cstdint>

#include "walks/cuda/walk.cuh"
#include "walks/custom/walker.h"

namespace loader {

// Tells a fault in memory that the host sees, one of those that there may be.
__device__ inline void tell(const Fault& fault, int64_t row, int64_t step, Fault* out, int* reported) {
  if (atomicCAS(reported, 0, 1)) return;
  out->line = fault.line;
  out->value = fault.value;
  out->row = row;
  out->step = step;
  __threadfence_system();
  out->wrong = fault.wrong;
}

// `reported`: 0 in the memory of the GPU.
template <class Lists, class Next, int Steps>
__global__ __launch_bounds__(kWalkThreads, kCustomBlocks) void walk_custom(
    const __grid_constant__ CustomRules rules, const __grid_constant__ Lists lists,
    WalkOut<typename Lists::Edge, typename Lists::Vertex> out, WalkStarts starts, Fault* fault,
    int* reported) {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  __shared__ WalkTile<N, Steps> vertices[kWalkThreads / kWarpWalkers];
  const WarpRows<P, N> at(out, starts.together);
  if (at.rows == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarpWalkers;
  const N start = start_of(starts, out, at);
  CustomWalker<Lists, Next::kMemory> walker;
  walker.begin(start, out.first_lane + static_cast<uint64_t>(at.first + at.lane));
  typename Next::Frame frame;
  bool goes = start >= 0;

  for (uint32_t first = 0; first < out.length; first += Steps) {
    N* const row = out.vertices + at.first * at.stride + first + 1;
    const uint32_t rest = out.length - first;
    if (!__any_sync(0xffffffffu, goes)) {
      write_ends(row, at.stride, at.rows, rest, at.lane);
      return;
    }
    const uint32_t width = rest < Steps ? rest : Steps;
    for (uint32_t step = 0; step < width; ++step) {
      N to = -1;
      if (goes) {
        walker.step = first + step;  // not a register of its own
        walker.begin_step(rules, lists);
        if (Next::template run<kAtOnce>(rules, lists, walker, frame) == Reply::kDone)
          to = static_cast<N>(frame.result);
        else
          tell(walker.fault, at.first + at.lane, walker.step, fault, reported);
        goes = to >= 0;
        if (goes) walker.go(to);
      }
      vertices[warp].entry[at.lane][step] = to;
    }
    __syncwarp();
    vertices[warp].write(row, at.stride, at.rows, static_cast<int>(width), at.lane);
    __syncwarp();
  }
}

}  // namespace loader
