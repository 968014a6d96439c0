// The edges of a frontier, shared out to all threads by one of six schedules, and read in one of three ways.
#pragma once

#include "traverse/cuda/frontier.cuh"

namespace loader {

constexpr int64_t kLineBytes = 128;
constexpr int64_t kWarpList = LOADER_TRAVERSE_WARP_LIST, kBlockList = LOADER_TRAVERSE_BLOCK_LIST;

// A part of the list of vertex v: places [begin, end).
template <typename P, typename N>
struct ListRange {
  P begin, end;
  N v;
};

template <typename P, typename N>
__device__ __forceinline__ ListRange<P, N> whole_list(const PlainLists<P, N>& lists, N v) {
  const ListOf<P> list = lists.list({v});
  return {list.begin, list.end, v};
}

// Gives each thread ranges of lists, until all edges of the frontier were given once. The threads of a warp
// call together.
template <typename P, typename N>
struct ListRanges {
  const Grid& grid;
  const Frontier<P, N>& frontier;
  ListSchedule schedule;
  int64_t at, end;  // in what the schedule shares out
  int64_t i = 0;    // the vertex in the queue that this thread is at

  __device__ ListRanges(const Grid& threads, const Frontier<P, N>& of, ListSchedule by)
      : grid(threads), frontier(of), schedule(by), at(0), end(0) {
    if (schedule == ListSchedule::kNode) {
      at = grid.warp_number() + grid.warps() * grid.lane;
      end = frontier.count;
    } else if (in_rows()) {
      const int64_t all = frontier.weight + extra() * frontier.count;
      const int64_t each = (all + grid.threads() - 1) / grid.threads();
      at = min(each * grid.thread(), all);
      end = min(at + each, all);
      if (at < end) i = vertex_of(at);
    } else {
      at = grid.thread();
      end = frontier.weight;
    }
  }

  // Whether a thread of the warp got a range.
  __device__ bool take(ListRange<P, N>& range) {
    range = {0, 0, 0};
    const bool has_one = at < end;
    if (!__any_sync(kWholeWarp, has_one)) return false;
    if (!has_one) return true;
    const PlainLists<P, N>& lists = frontier.lists;
    if (schedule == ListSchedule::kNode) {
      range = whole_list(lists, frontier.queue[at]);
      at += grid.warps() * 32;
    } else if (in_rows()) {
      // What is left of the list of vertex i, and of the share.
      range.v = frontier.queue[i];
      const ListOf<P> list = lists.list({range.v});
      const int64_t first = frontier.before[i] + extra() * i;
      const P degree = list.end - list.begin;
      range.begin = list.begin + static_cast<P>(min(at - first, static_cast<int64_t>(degree)));
      range.end = list.begin + static_cast<P>(min(end - first, static_cast<int64_t>(degree)));
      at = min(first + static_cast<int64_t>(degree) + extra(), end);
      ++i;
    } else {
      const int64_t each = schedule == ListSchedule::kEdge ? 1 : kRangeEntries;
      const int64_t j = vertex_of(at);
      range.v = frontier.queue[j];
      const ListOf<P> list = lists.list({range.v});
      range.begin = list.begin + static_cast<P>((at - frontier.before[j]) * each);
      range.end = min(static_cast<P>(range.begin + static_cast<P>(each)), list.end);
      at += grid.threads();
    }
    return true;
  }

 private:
  __device__ bool in_rows() const {
    return schedule == ListSchedule::kDecomposition || schedule == ListSchedule::kMergePath;
  }
  __device__ int64_t extra() const { return schedule == ListSchedule::kMergePath; }  // for each vertex

  // The last vertex of the queue that begins at `place` or before.
  __device__ int64_t vertex_of(int64_t place) const {
    int64_t low = 0, high = frontier.count;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      if (frontier.before[middle] + extra() * middle <= place)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
};

// The place at or before `begin` at which a line of memory begins.
template <typename Lists, typename P = typename Lists::Edge>
__device__ __forceinline__ P line_begin(const Lists& lists, P begin) {
  uintptr_t address = 0;
  lists.where(begin, int64_t{1}, [&](const auto* at, int64_t) { address = reinterpret_cast<uintptr_t>(at); });
  return begin - static_cast<P>(address % kLineBytes / sizeof(typename Lists::Vertex));
}

// f of each entry of a range, by the threads of a warp together.
template <typename P, typename N, class F>
__device__ __forceinline__ void read_together(const PlainLists<P, N>& lists, bool aligned,
                                              const ListRange<P, N>& range, int lane, int lanes, F& f) {
  auto item = f.begin(range.v);
  // Neither may be below 0: indices lie on a boundary, or places before the first are left out below.
  const int64_t first = aligned ? static_cast<int64_t>(line_begin(lists, range.begin)) : range.begin;
  for (int64_t at = first + lane; at < range.end; at += lanes)
    if (at >= range.begin) f.edge(item, static_cast<P>(at));
  f.end(item, range.v, true);
}

// Each edge of the frontier to `f`, once:
//   begin(v)           what is kept of the vertex while its edges come, an Item
//   edge(item, at)     the edge at this place of the lists
//   end(item, v, together)  after the last edge of a range; `together`: all threads of the warp had parts of
//   it
// `f` has no collectives of warp or block but in `end` with `together`.
template <typename P, typename N, class F>
__device__ void for_each_edge(const Grid& grid, const ListPlan& plan, const Frontier<P, N>& frontier, F& f) {
  const PlainLists<P, N>& lists = frontier.lists;
  const bool aligned = plan.access == ListAccess::kAligned;
  ListRange<P, N> range;
  const auto read_in_turn = [&](uint32_t which) {
    for (; which; which &= which - 1) {
      const int from = __ffs(which) - 1;
      const ListRange<P, N> one{__shfl_sync(kWholeWarp, range.begin, from),
                                __shfl_sync(kWholeWarp, range.end, from),
                                __shfl_sync(kWholeWarp, range.v, from)};
      read_together(lists, aligned, one, grid.lane, 32, f);
    }
  };
  if (plan.schedule != ListSchedule::kHierarchical) {
    ListRanges<P, N> ranges(grid, frontier, plan.schedule);
    while (ranges.take(range)) {
      if (plan.access == ListAccess::kNaive || plan.schedule == ListSchedule::kEdge) {
        if (range.begin >= range.end) continue;
        auto item = f.begin(range.v);
        for (P at = range.begin; at < range.end; ++at) f.edge(item, at);
        f.end(item, range.v, false);
      } else {
        read_in_turn(__ballot_sync(kWholeWarp, range.begin < range.end));
      }
    }
    return;
  }
  __shared__ ListRange<P, N> longest[kTraverseThreads];
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  const int64_t in_block = int64_t{grid.lane} * kTraverseWarps + grid.warp;
  for (int64_t first = 0; first < frontier.count; first += grid.threads()) {
    const int64_t i = first + in_block * grid.blocks + grid.block;
    range = {0, 0, 0};
    if (i < frontier.count) range = whole_list(lists, frontier.queue[i]);
    const auto degree = static_cast<int64_t>(range.end - range.begin);
    if (degree >= kBlockList) longest[atomicAdd(&found, 1)] = range;
    if (degree > 0 && degree < kWarpList) {
      auto item = f.begin(range.v);
      for (P at = range.begin; at < range.end; ++at) f.edge(item, at);
      f.end(item, range.v, false);
    }
    __syncwarp();
    read_in_turn(__ballot_sync(kWholeWarp, degree >= kWarpList && degree < kBlockList));
    __syncthreads();
    const int count = found;
    for (int j = 0; j < count; ++j)
      read_together(lists, aligned, longest[j], static_cast<int>(threadIdx.x), kTraverseThreads, f);
    __syncthreads();
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
  }
}

}  // namespace loader
