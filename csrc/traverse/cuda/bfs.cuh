// Breadth-first search on the GPU in one launch, whose blocks meet after each level.
#pragma once

#include "traverse/cuda/calls.h"
#include "traverse/cuda/narrow_levels.cuh"
#include "traverse/cuda/schedule.cuh"

namespace loader {

constexpr int64_t kLineBytes = 128;

// The place at or before `begin` at which a line of memory begins: over the bus a list is read from there on,
// as in EMOGI (Min et al., VLDB 2020).
template <typename Lists, typename P = typename Lists::Edge>
__device__ __forceinline__ P line_begin(const Lists& lists, P begin) {
  uintptr_t address = 0;
  lists.where(begin, int64_t{1}, [&](const auto* at, int64_t) { address = reinterpret_cast<uintptr_t>(at); });
  return begin - static_cast<P>(address % kLineBytes / sizeof(typename Lists::Vertex));
}

constexpr int64_t kFew = 8;  // entries that a thread looks at by itself, in GPU memory

// Puts each vertex that an edge leads to, and that was not seen, into `next`.
template <typename P, typename N>
struct Visit {
  struct Item {};
  PlainLists<P, N> lists;
  const uint32_t* seen;
  uint32_t* next;

  __device__ Item begin(N) const { return {}; }
  __device__ void edge(Item&, P at) const {
    const N u = lists.read(at);
    if (!has(seen, u) && !has(next, u)) insert(next, u);
  }
  __device__ void end(Item&, N, bool) const {}
};

// Whether a step back is expected to read less. A step onward reads all lists of the frontier. A step back
// reads those of all unseen vertices until one entry is in the frontier, which has this share of all edges.
// (All that were seen before the frontier have no unseen neighbor.)
template <typename P, typename N>
__device__ bool goes_back(const Frontier<P, N>& frontier, int64_t unseen, int64_t num_edges, int32_t line) {
  const auto edges = static_cast<double>(frontier.edges);
  const double onward = edges / line + static_cast<double>(frontier.count);
  return edges > 0 &&
         onward > static_cast<double>(unseen) * (1.0 + static_cast<double>(num_edges) / edges / line);
}

template <typename P, typename N>
__device__ void step_back(const Grid& grid, const BfsCall<P, N>& call, const uint32_t* seen, uint32_t* next) {
  const PlainLists<P, N>& lists = call.back.lists;
  const int64_t n = call.back.num_nodes;
  // Over the bus a line costs as much as a word: whole lines are read.
  const bool alone = call.line == 1, aligned = !alone;
  for (int64_t word = grid.warp_number(); word < (n + 31) / 32; word += grid.warps()) {
    const int64_t v = word * 32 + grid.lane;
    bool searches = v < n && !(seen[word] >> grid.lane & 1), found = false;
    P at = 0, end = 0;
    if (searches) {
      const ListOf<P> list = lists.list({v});
      at = list.begin;
      end = list.end;
      if (alone) {
        const P few = end - at < kFew ? end : static_cast<P>(at + kFew);
        for (; at < few && !found; ++at) found = has(seen, lists.read(at));
      }
      searches = !found && at < end;
    }
    for (uint32_t left = __ballot_sync(kWholeWarp, searches); left; left &= left - 1) {
      const int of = __ffs(left) - 1;
      const int64_t begin = __shfl_sync(kWholeWarp, at, of), stop = __shfl_sync(kWholeWarp, end, of);
      bool any = false;
      for (int64_t first = aligned ? int64_t{line_begin(lists, static_cast<P>(begin))} : begin;
           first < stop && !any; first += 32) {
        const int64_t mine = first + grid.lane;
        any = __any_sync(kWholeWarp,
                         mine >= begin && mine < stop && has(seen, lists.read(static_cast<P>(mine))));
      }
      if (grid.lane == of) found = any;
    }
    const uint32_t bits = __ballot_sync(kWholeWarp, found);
    if (grid.lane == 0 && bits) next[word] = bits;
  }
}

template <typename P, typename N>
__global__ __launch_bounds__(kTraverseThreads,
                             kTraverseBlocks) void bfs_kernel(const __grid_constant__ BfsCall<P, N> call) {
  const Grid grid(call.space.state);
  const int64_t n = call.onward.num_nodes;
  uint32_t* const seen = call.space.sets[0];
  uint32_t* next = call.space.sets[1];
  uint32_t* spare[2] = {call.space.sets[2], call.space.sets[3]};
  grid.each(traverse_words(n),
            [&](int64_t word) { seen[word] = next[word] = spare[0][word] = spare[1][word] = 0; });
  grid.each(n, [&](int64_t v) { call.distance[v] = -1; });
  grid.sync();
  grid.each(call.count, [&](int64_t i) { insert(next, call.sources[i]); });
  grid.sync();
  const int64_t num_edges = count_entries(call.onward.lists, n);
  int64_t unseen = n;
  uint64_t steps = 0, steps_back = 0;
  bool may_be_narrow = true;
  for (int32_t level = 0;; ++level) {
    FrontierMaker<P, N> maker(grid, call.onward);
    maker.count(next);
    grid.sync();
    const Frontier<P, N> frontier = maker.total(call.space.queue, call.space.before);
    if (frontier.count == 0) break;
    if (may_be_narrow && frontier.count <= kNarrow) {
      uint32_t* const sets[4] = {seen, next, spare[0], spare[1]};
      NarrowLevels<P, N> narrow(grid, call, sets, level, frontier.count, unseen - frontier.count);
      grid.sync();  // all have read the totals
      const auto end = narrow.run(maker);
      steps += narrow.steps;
      if (end == NarrowLevels<P, N>::End::kAll) break;
      next = narrow.now;
      spare[0] = narrow.next;
      spare[1] = narrow.empty;
      unseen = narrow.unseen + narrow.here;
      level = narrow.level - 1;
      may_be_narrow = false;
      grid.sync();
      continue;
    }
    may_be_narrow = true;
    unseen -= frontier.count;
    const bool is_last = level == call.most || unseen == 0;
    const bool back = call.turns && goes_back(frontier, unseen, num_edges, call.line);
    const auto reach = [&](int64_t word, uint32_t bits) {
      if (bits >> grid.lane & 1) call.distance[word * 32 + grid.lane] = level;
      __syncwarp();
      if (grid.lane == 0) {
        seen[word] |= bits;
        next[word] = 0;
      }
    };
    if (is_last || back)
      maker.each_word(next, [&](int64_t word, int64_t, uint32_t bits) { reach(word, bits); });
    else
      maker.write(next, frontier, reach);
    if (is_last) break;
    grid.sync();
    if (back) {
      step_back(grid, call, seen, next);
    } else {
      Visit<P, N> visit{call.onward.lists, seen, next};
      for_each_edge(grid, call.line, frontier, visit);
    }
    ++steps;
    steps_back += back;
    grid.sync();
  }
  if (grid.thread() == 0) {
    grid.state->result[0] = steps;
    grid.state->result[1] = steps_back;
  }
}

}  // namespace loader
