// Shortest paths on the GPU in one launch, by near and far piles (Davidson, Baxter, Garland, Owens, IPDPS
// 2014).
#pragma once

#include "traverse/cuda/calls.h"
#include "traverse/cuda/schedule.cuh"

namespace loader {

// Makes paths shorter, and puts vertices to which this happened into one of the piles.
template <typename N, typename W>
struct Relax {
  using Of = Length<W>;
  using Bits = typename Of::Bits;
  using Item = Bits;
  const N* indices;
  const W* weights;
  Bits* length;
  Bits limit;
  uint32_t *near, *far;

  // Of the memory of all blocks: the length may have been written in this launch.
  __device__ Item begin(N v) const { return __ldcg(length + v); }
  template <typename P>
  __device__ void edge(const Item& own, P at) const {
    const N u = indices[at];
    const Bits longer = Of::plus(own, weights[at]);
    if (longer < __ldcg(length + u) && longer < lower_to(length + u, longer))
      insert(longer <= limit ? near : far, u);
  }
  __device__ void end(const Item&, N, bool) const {}
};

// The least length of the far pile, without the vertices that are done: a shorter path brought them to the
// near one.
template <typename P, typename N, typename Bits>
__device__ Bits least_of_far(const Grid& grid, const FrontierMaker<P, N>& maker, uint32_t* far,
                             const Bits* length, Bits done, Bits none) {
  Bits least = none;
  maker.each_word(far, [&](int64_t word, int64_t v, uint32_t bits) {
    const bool is_in = bits >> grid.lane & 1;
    const Bits own = is_in ? __ldcg(length + v) : none;
    const uint32_t stay = __ballot_sync(kWholeWarp, is_in && own > done);
    if (own > done) least = min(least, own);
    if (grid.lane == 0) far[word] = stay;
  });
  for (int offset = 16; offset > 0; offset /= 2)
    least = min(least, __shfl_xor_sync(kWholeWarp, least, offset));
  __shared__ Bits of_warps[kTraverseWarps];
  if (grid.lane == 0) of_warps[grid.warp] = least;
  __syncthreads();
  for (int w = 0; w < kTraverseWarps; ++w) least = min(least, of_warps[w]);
  if (threadIdx.x == 0) grid.state->totals[grid.block].least = least;
  grid.sync();
  least = none;
  for (int b = 0; b < grid.blocks; ++b) least = min(least, static_cast<Bits>(grid.state->totals[b].least));
  return least;
}

template <typename P, typename N, typename W>
__global__ __launch_bounds__(kTraverseThreads, kTraverseBlocks) void sssp_kernel(
    const __grid_constant__ SsspCall<P, N, W> call) {
  using Of = Length<W>;
  using Bits = typename Of::Bits;
  const Grid grid(call.space.state);
  const int64_t n = call.onward.num_nodes;
  uint32_t *const near = call.space.sets[0], *const far = call.space.sets[1];
  grid.each(traverse_words(n), [&](int64_t word) { near[word] = far[word] = 0; });
  grid.each(n, [&](int64_t v) { call.length[v] = Of::kUnreached; });
  grid.sync();
  grid.each(call.count, [&](int64_t i) {
    call.length[call.sources[i]] = 0;
    insert(near, call.sources[i]);
  });
  grid.sync();
  Bits limit = Of::plus(0, call.delta);
  uint64_t steps = 0, piles = 1, edges = 0;
  for (;;) {
    FrontierMaker<P, N> maker(grid, call.onward, call.plan.schedule);
    maker.count(near);
    grid.sync();
    const Frontier<P, N> frontier = maker.total(call.space.queue, call.space.before);
    if (frontier.count == 0) {
      const Bits done = limit;
      const Bits least = least_of_far(grid, maker, far, call.length, done, Bits{Of::kUnreached});
      if (least == Of::kUnreached) break;
      limit = Of::plus(least, call.delta);
      maker.each_word(far, [&](int64_t word, int64_t v, uint32_t bits) {
        const bool is_in = bits >> grid.lane & 1;
        const uint32_t chosen = __ballot_sync(kWholeWarp, is_in && __ldcg(call.length + v) <= limit);
        if (grid.lane == 0) {
          near[word] = chosen;
          far[word] = bits & ~chosen;
        }
      });
      ++piles;
      grid.sync();
      continue;
    }
    maker.write(near, frontier, [&](int64_t word, uint32_t) {
      if (grid.lane == 0) near[word] = 0;
    });
    grid.sync();
    Relax<N, W> relax{call.onward.indices, call.weights, call.length, limit, near, far};
    for_each_edge(grid, call.plan, frontier, relax);
    ++steps;
    edges += static_cast<uint64_t>(frontier.edges);
    grid.sync();
  }
  if (grid.thread() == 0) {
    grid.state->result[0] = steps;
    grid.state->result[1] = piles;
    grid.state->result[2] = edges;
  }
}

}  // namespace loader
