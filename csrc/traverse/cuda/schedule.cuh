// The edges of a frontier, shared out to all threads. Over the bus a thread takes an edge at a time, so that
// neighboring threads read neighboring words. In GPU memory a thread, a warp or a block takes a list, by its
// length. Both are schedules of Raval et al., arXiv 1711.00231.
#pragma once

#include "traverse/cuda/frontier.cuh"

namespace loader {

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

// The vertex of the queue that has edge `place` of the frontier.
template <typename P, typename N>
__device__ __forceinline__ int64_t vertex_of(const Frontier<P, N>& frontier, int64_t place) {
  int64_t low = 0, high = frontier.count;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (frontier.before[middle] <= place)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// f of each entry of a range, by the threads of a warp or of a block together.
template <typename P, typename N, class F>
__device__ __forceinline__ void read_together(const ListRange<P, N>& range, int lane, int lanes, F& f) {
  auto item = f.begin(range.v);
  for (int64_t at = static_cast<int64_t>(range.begin) + lane; at < range.end; at += lanes)
    f.edge(item, static_cast<P>(at));
  f.end(item, range.v, true);
}

// Each edge of the frontier to `f`, once:
//   begin(v)           what is kept of the vertex while its edges come, an Item
//   edge(item, at)     the edge at this place of the lists
//   end(item, v, together)  after the last edge of a range; `together`: all threads of the warp had parts of
//   it
// `f` has no collectives of warp or block but in `end` with `together`.
template <typename P, typename N, class F>
__device__ void for_each_edge(const Grid& grid, int32_t line, const Frontier<P, N>& frontier, F& f) {
  const PlainLists<P, N>& lists = frontier.lists;
  if (line > 1) {
    // A warp stays together, however long `f` takes of an edge: else its words are not read as lines.
    for (int64_t first = grid.thread() - grid.lane; first < frontier.edges; first += grid.threads()) {
      const int64_t at = first + grid.lane;
      if (at < frontier.edges) {
        const int64_t i = vertex_of(frontier, at);
        const N v = frontier.queue[i];
        auto item = f.begin(v);
        f.edge(item, static_cast<P>(lists.list({v}).begin + static_cast<P>(at - frontier.before[i])));
        f.end(item, v, false);
      }
      __syncwarp();
    }
    return;
  }
  ListRange<P, N> range;
  const auto read_in_turn = [&](uint32_t which) {
    for (; which; which &= which - 1) {
      const int from = __ffs(which) - 1;
      const ListRange<P, N> one{__shfl_sync(kWholeWarp, range.begin, from),
                                __shfl_sync(kWholeWarp, range.end, from),
                                __shfl_sync(kWholeWarp, range.v, from)};
      read_together(one, grid.lane, 32, f);
    }
  };
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
      read_together(longest[j], static_cast<int>(threadIdx.x), kTraverseThreads, f);
    __syncthreads();
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
  }
}

}  // namespace loader
