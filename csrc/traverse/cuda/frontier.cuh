// From a set of vertices to a list of them in ascending order, with the work that lies before each.
#pragma once

#include "traverse/cuda/grid.cuh"

namespace loader {

constexpr int64_t kRangeEntries = LOADER_TRAVERSE_RANGE;

// How much of what a schedule shares out evenly a list of `degree` entries is.
__device__ __forceinline__ uint64_t weight_of(ListSchedule schedule, uint64_t degree) {
  return schedule == ListSchedule::kSplitting ? (degree + kRangeEntries - 1) / kRangeEntries : degree;
}

template <typename P, typename N>
struct Frontier {
  PlainLists<P, N> lists;
  N* queue;   // [count]
  P* before;  // [count + 1]
  int64_t count, weight, edges;
};

// Makes frontiers of one traversal. All threads call: `count`, a barrier, `total`, perhaps `write` and a
// barrier.
template <typename P, typename N>
struct FrontierMaker {
  const Grid& grid;
  PlainGraph<P, N> graph;
  ListSchedule schedule;
  uint64_t own[3];  // of this warp: vertices, weight, edges

  __device__ FrontierMaker(const Grid& threads, const PlainGraph<P, N>& of, ListSchedule by)
      : grid(threads), graph(of), schedule(by), own{0, 0, 0} {}

  __device__ P entries_of(int64_t v) const {
    const ListOf<P> list = graph.lists.list({v});
    return list.end - list.begin;
  }

  // Counts what the bits of this block's words have.
  __device__ void count(const uint32_t* set) {
    uint64_t sums[3] = {0, 0, 0};
    each_word(set, [&](int64_t, int64_t v, uint32_t bits) {
      if (!(bits >> grid.lane & 1)) return;
      const auto degree = static_cast<uint64_t>(entries_of(v));
      sums[0] += 1;
      sums[1] += weight_of(schedule, degree);
      sums[2] += degree;
    });
    for (int j = 0; j < 3; ++j) own[j] = sum_of_warp(sums[j]);
    for (int j = 0; j < 3; ++j) sums[j] = grid.lane == 0 ? own[j] : 0;
    sum_of_block(sums);
    if (threadIdx.x == 0) grid.state->totals[grid.block] = {sums[0], sums[1], sums[2], 0};
  }

  // The sums of all blocks; `own` becomes what lies before this warp.
  __device__ Frontier<P, N> total(N* queue, P* before) {
    __shared__ uint64_t of_warps[2][kTraverseWarps];
    uint64_t sums[5] = {0, 0, 0, 0, 0};
    for (int b = static_cast<int>(threadIdx.x); b < grid.blocks; b += kTraverseThreads) {
      const GridState::Totals& totals = grid.state->totals[b];
      sums[0] += totals.count;
      sums[1] += totals.weight;
      sums[2] += totals.edges;
      if (b < grid.block) {
        sums[3] += totals.count;
        sums[4] += totals.weight;
      }
    }
    if (grid.lane == 0)
      for (int j = 0; j < 2; ++j) of_warps[j][grid.warp] = own[j];
    sum_of_block(sums);
    for (int j = 0; j < 2; ++j) {
      own[j] = sums[3 + j];
      for (int w = 0; w < grid.warp; ++w) own[j] += of_warps[j][w];
    }
    return {graph.lists,
            queue,
            before,
            static_cast<int64_t>(sums[0]),
            static_cast<int64_t>(sums[1]),
            static_cast<int64_t>(sums[2])};
  }

  // Writes the list; f(word, bits) for each word of the set that has bits, f of all lanes.
  template <class F>
  __device__ void write(const uint32_t* set, const Frontier<P, N>& frontier, const F& f) {
    uint64_t at = own[0], weight = own[1];
    each_word(set, [&](int64_t word, int64_t v, uint32_t bits) {
      const bool is_in = bits >> grid.lane & 1;
      const uint64_t degree = is_in ? static_cast<uint64_t>(entries_of(v)) : 0;
      const uint64_t mine = is_in ? weight_of(schedule, degree) : 0;
      uint64_t up_to = mine;
      for (int offset = 1; offset < 32; offset *= 2) {
        const uint64_t below = __shfl_up_sync(kWholeWarp, up_to, static_cast<unsigned>(offset));
        if (grid.lane >= offset) up_to += below;
      }
      if (is_in) {
        const uint64_t place = at + static_cast<uint64_t>(__popc(bits & ((1u << grid.lane) - 1)));
        frontier.queue[place] = static_cast<N>(v);
        frontier.before[place] = static_cast<P>(weight + up_to - mine);
      }
      at += static_cast<uint64_t>(__popc(bits));
      weight += __shfl_sync(kWholeWarp, up_to, 31);
      f(word, bits);
    });
    if (grid.thread() == 0) frontier.before[frontier.count] = static_cast<P>(frontier.weight);
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
      for (uint32_t live = __ballot_sync(kWholeWarp, own_word != 0); live; live &= live - 1) {
        const int from = __ffs(live) - 1;
        f(first + from, (first + from) * 32 + grid.lane, __shfl_sync(kWholeWarp, own_word, from));
      }
    }
  }
};

}  // namespace loader
