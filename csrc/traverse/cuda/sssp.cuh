// Shortest paths on the GPU in one launch, by near and far piles (Davidson, Baxter, Garland, Owens, IPDPS
// 2014).
#pragma once

#include "traverse/cuda/calls.h"
#include "traverse/cuda/schedule.cuh"

namespace loader {

constexpr int64_t kFewEdges = 1 << 18, kManyEdges = 1 << 22;
constexpr int kFewPiles = 16;

// Makes paths shorter, and puts vertices to which this happened into one of the piles.
template <typename P, typename N, typename W>
struct Relax {
  using Of = Length<W>;
  using Bits = typename Of::Bits;
  using Item = Bits;
  PlainLists<P, N> lists;
  const W* weights;
  Bits* length;
  Bits bound;  // of the near pile
  uint32_t *near, *far;
  const uint32_t* settled;  // no path to these becomes shorter

  // Of the memory of all blocks: the length may have been written in this launch.
  __device__ Item begin(N v) const { return __ldcg(length + v); }
  __device__ void edge(const Item& own, P at) const {
    const N u = lists.read(at);
    if (has(settled, u)) return;
    const Bits longer = Of::plus(own, weights[at]);
    if (longer < __ldcg(length + u) && longer < lower_to(length + u, longer))
      insert(longer < bound ? near : far, u);
  }
  __device__ void end(const Item&, N, bool) const {}
};

// The piles: vertices whose path became shorter since their edges were followed. Of the near pile these are
// below `bound`.
template <typename P, typename N, typename W>
struct Piles {
  using Of = Length<W>;
  using Bits = typename Of::Bits;
  const Grid& grid;
  const SsspCall<P, N, W>& call;
  uint32_t *near, *far, *settled;
  Bits bound;
  W delta;          // how long the near pile is
  int few = 0;      // piles in a row that had few edges
  int64_t had = 0;  // edges of this pile

  __device__ Piles(const Grid& threads, const SsspCall<P, N, W>& kernel_call)
      : grid(threads),
        call(kernel_call),
        near(kernel_call.space.sets[0]),
        far(kernel_call.space.sets[1]),
        settled(kernel_call.space.sets[2]),
        bound(1),
        delta(kernel_call.delta) {}

  // Takes those out of the far pile that came into the near one by a shorter path; writes the least length of
  // the others for `least`.
  __device__ void sift(const FrontierMaker<P, N>& maker) const {
    Bits least = Of::kUnreached;
    maker.each_word(far, [&](int64_t word, int64_t v, uint32_t bits) {
      const Bits own = bits >> grid.lane & 1 ? __ldcg(call.length + v) : Bits{0};
      const uint32_t stay = __ballot_sync(kWholeWarp, own >= bound);
      if (own >= bound) least = min(least, own);
      if (grid.lane == 0) far[word] = stay;
    });
    least = least_of_block(least);
    if (threadIdx.x == 0) grid.state->totals[grid.block].least = least;
  }

  // After a barrier: the least length of the far pile; kUnreached if there is none.
  __device__ Bits least() const {
    Bits least = Of::kUnreached;
    for (int b = static_cast<int>(threadIdx.x); b < grid.blocks; b += kTraverseThreads)
      least = min(least, static_cast<Bits>(grid.state->totals[b].least));
    return least_of_block(least);
  }

  // Moves those from `least` on into the near pile, which was empty. All paths that are still to come are
  // longer by an edge, so those that are not longer are settled (the out-criterion of Crauser, Mehlhorn,
  // Meyer, Sanders, MFCS 1998).
  __device__ void advance(const FrontierMaker<P, N>& maker, Bits least) {
    stretch();
    const Bits beyond = Of::plus(least, delta);
    bound = beyond > least ? beyond : least + 1;  // lengths are ordered as their bits are
    maker.each_word(far, [&](int64_t word, int64_t v, uint32_t bits) {
      const bool is_near = bits >> grid.lane & 1 && __ldcg(call.length + v) < bound;
      const uint32_t chosen = __ballot_sync(kWholeWarp, is_near);
      if (grid.lane == 0) {
        near[word] = chosen;
        far[word] = bits & ~chosen;
      }
    });
    const Bits sure = Of::plus(least, call.least_weight);
    const int64_t n = call.onward.num_nodes;
    for (int64_t word = grid.warp_number(); word < (n + 31) / 32; word += grid.warps()) {
      const int64_t v = word * 32 + grid.lane;
      const uint32_t bits = __ballot_sync(kWholeWarp, v < n && __ldcg(call.length + v) <= sure);
      if (grid.lane == 0) settled[word] = bits;
    }
    __syncwarp();
  }

 private:
  // Makes the next pile longer after many piles in a row that could not keep the GPU busy, and as long as the
  // first one after a large one.
  __device__ void stretch() {
    few = had < kFewEdges ? few + 1 : 0;
    if (had > kManyEdges) delta = call.delta;
    if (few == kFewPiles) {
      few = 0;
      if (delta < call.most_delta) delta += delta;
    }
    had = 0;
  }

  // The least over the threads of the block, which all call it.
  __device__ static Bits least_of_block(Bits x) {
    __shared__ Bits of_warps[kTraverseWarps];
    for (int offset = 16; offset > 0; offset /= 2) x = min(x, __shfl_xor_sync(kWholeWarp, x, offset));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    for (int w = 0; w < kTraverseWarps; ++w) x = min(x, of_warps[w]);
    __syncthreads();  // they may be used again
    return x;
  }
};

template <typename P, typename N, typename W>
__global__ __launch_bounds__(kTraverseThreads, kTraverseBlocks) void sssp_kernel(
    const __grid_constant__ SsspCall<P, N, W> call) {
  using Of = Length<W>;
  using Bits = typename Of::Bits;
  const Grid grid(call.space.state);
  const int64_t n = call.onward.num_nodes;
  Piles<P, N, W> piles(grid, call);
  grid.each(traverse_words(n),
            [&](int64_t word) { piles.near[word] = piles.far[word] = piles.settled[word] = 0; });
  grid.each(n, [&](int64_t v) { call.length[v] = Of::kUnreached; });
  grid.sync();
  grid.each(call.count, [&](int64_t i) {
    call.length[call.sources[i]] = 0;
    insert(piles.near, call.sources[i]);
  });
  grid.sync();
  uint64_t steps = 0, advances = 0, edges = 0;
  for (;;) {
    FrontierMaker<P, N> maker(grid, call.onward);
    maker.count(piles.near);
    piles.sift(maker);
    grid.sync();
    Frontier<P, N> frontier = maker.total(call.space.queue, call.space.before);
    if (frontier.count == 0) {
      const Bits least = piles.least();
      if (least == Of::kUnreached) break;
      grid.sync();  // all have read the totals
      piles.advance(maker, least);
      maker.count(piles.near);  // of the words that this warp has just written
      grid.sync();
      frontier = maker.total(call.space.queue, call.space.before);
      ++advances;
    }
    maker.write(piles.near, frontier, [&](int64_t word, uint32_t) {
      if (grid.lane == 0) piles.near[word] = 0;
    });
    grid.sync();
    Relax<P, N, W> relax{call.onward.lists, call.weights, call.length,  piles.bound,
                         piles.near,        piles.far,    piles.settled};
    for_each_edge(grid, call.line, frontier, relax);
    ++steps;
    edges += static_cast<uint64_t>(frontier.edges);
    piles.had += frontier.edges;
    grid.sync();
  }
  if (grid.thread() == 0) {
    grid.state->result[0] = steps;
    grid.state->result[1] = advances;
    grid.state->result[2] = edges;
  }
}

}  // namespace loader
