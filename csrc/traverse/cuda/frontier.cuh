// From a set of vertices to a list of them in ascending order, with the edges that lie before each.
#pragma once

#include "traverse/cuda/grid.cuh"

namespace loader {

template <typename P, typename N>
struct Frontier {
  PlainLists<P, N> lists;
  N* queue;   // [count]
  P* before;  // [count + 1]
  int64_t count, edges;
};

// Makes frontiers of one traversal. All threads call: `count`, a barrier, `total`, perhaps `write` and a
// barrier.
template <typename P, typename N>
struct FrontierMaker {
  const Grid& grid;
  PlainGraph<P, N> graph;
  uint64_t own[2];  // of this warp: vertices, edges

  __device__ FrontierMaker(const Grid& threads, const PlainGraph<P, N>& of)
      : grid(threads), graph(of), own{0, 0} {}

  __device__ P entries_of(int64_t v) const {
    const ListOf<P> list = graph.lists.list({v});
    return list.end - list.begin;
  }

  // Counts what the bits of this block's words have.
  __device__ void count(const uint32_t* set) {
    uint64_t sums[2] = {0, 0};
    each_word(set, [&](int64_t, int64_t v, uint32_t bits) {
      if (!(bits >> grid.lane & 1)) return;
      sums[0] += 1;
      sums[1] += static_cast<uint64_t>(entries_of(v));
    });
    for (int j = 0; j < 2; ++j) own[j] = sum_of_warp(sums[j]);
    for (int j = 0; j < 2; ++j) sums[j] = grid.lane == 0 ? own[j] : 0;
    sum_of_block(sums);
    if (threadIdx.x == 0) grid.state->totals[grid.block] = {sums[0], sums[1], 0};
  }

  // The sums of all blocks; `own` becomes what lies before this warp.
  __device__ Frontier<P, N> total(N* queue, P* before) {
    __shared__ uint64_t of_warps[2][kTraverseWarps];
    uint64_t sums[4] = {0, 0, 0, 0};
    for (int b = static_cast<int>(threadIdx.x); b < grid.blocks; b += kTraverseThreads) {
      const GridState::Totals& totals = grid.state->totals[b];
      sums[0] += totals.count;
      sums[1] += totals.edges;
      if (b < grid.block) {
        sums[2] += totals.count;
        sums[3] += totals.edges;
      }
    }
    if (grid.lane == 0)
      for (int j = 0; j < 2; ++j) of_warps[j][grid.warp] = own[j];
    sum_of_block(sums);
    for (int j = 0; j < 2; ++j) {
      own[j] = sums[2 + j];
      for (int w = 0; w < grid.warp; ++w) own[j] += of_warps[j][w];
    }
    return {graph.lists, queue, before, static_cast<int64_t>(sums[0]), static_cast<int64_t>(sums[1])};
  }

  // Writes the list; f(word, bits) for each word of the set that has bits, f of all lanes.
  template <class F>
  __device__ void write(const uint32_t* set, const Frontier<P, N>& frontier, const F& f) {
    uint64_t at = own[0], edges = own[1];
    each_word(set, [&](int64_t word, int64_t v, uint32_t bits) {
      const bool is_in = bits >> grid.lane & 1;
      const uint64_t mine = is_in ? static_cast<uint64_t>(entries_of(v)) : 0;
      uint64_t up_to = mine;
      for (int offset = 1; offset < 32; offset *= 2) {
        const uint64_t below = __shfl_up_sync(kWholeWarp, up_to, static_cast<unsigned>(offset));
        if (grid.lane >= offset) up_to += below;
      }
      if (is_in) {
        const uint64_t place = at + static_cast<uint64_t>(__popc(bits & ((1u << grid.lane) - 1)));
        frontier.queue[place] = static_cast<N>(v);
        frontier.before[place] = static_cast<P>(edges + up_to - mine);
      }
      at += static_cast<uint64_t>(__popc(bits));
      edges += __shfl_sync(kWholeWarp, up_to, 31);
      f(word, bits);
    });
    if (grid.thread() == 0) frontier.before[frontier.count] = static_cast<P>(frontier.edges);
  }

  // f(word) for each word of this warp.
  template <class F>
  __device__ void each_own_word(const F& f) const {
    const int64_t words = traverse_words(graph.num_nodes), parts = grid.warps();
    const int64_t part = int64_t{grid.block} * kTraverseWarps + grid.warp, end = words * (part + 1) / parts;
    for (int64_t word = words * part / parts + grid.lane; word < end; word += 32) f(word);
  }

  // f(word, v, bits) for each word of this warp that has bits; v is the lane's vertex.
  template <class F>
  __device__ void each_word(const uint32_t* set, const F& f) const {
    const int64_t words = traverse_words(graph.num_nodes), parts = grid.warps();
    const int64_t part = int64_t{grid.block} * kTraverseWarps + grid.warp;
    const int64_t begin = words * part / parts, end = words * (part + 1) / parts;
    for (int64_t first = begin; first < end; first += 32) {
      const uint32_t own_word = first + grid.lane < end ? set[first + grid.lane] : 0;
      for (uint32_t captured = __ballot_sync(kWholeWarp, own_word != 0); captured; captured &= captured - 1) {
        const int from = __ffs(captured) - 1;
        f(first + from, (first + from) * 32 + grid.lane, __shfl_sync(kWholeWarp, own_word, from));
      }
    }
  }
};

}  // namespace loader
