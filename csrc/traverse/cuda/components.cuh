// Connected components on the GPU in one launch: Afforest (Sutton, Ben-Nun, Barak, IPDPS 2018).
#pragma once

#include "traverse/cuda/calls.h"
#include "traverse/cuda/schedule.cuh"

namespace loader {

constexpr int64_t kFirstNeighbors = 2;  // that come first, in GPU memory
constexpr int64_t kEachOf = 8;          // else one of this many vertices comes first, with all its neighbors
constexpr int kSampledLabels = 256;     // by which the largest part is found

__device__ __forceinline__ bool set_parent(int32_t* at, int32_t own, int32_t parent) {
  return atomicCAS(at, own, parent) == own;
}
__device__ __forceinline__ bool set_parent(int64_t* at, int64_t own, int64_t parent) {
  return atomicCAS(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(own),
                   static_cast<unsigned long long>(parent)) == static_cast<unsigned long long>(own);
}

// Makes two trees one, whose labels are `a` and `b`. A root gets a smaller vertex as its parent, so the last
// root is the smallest of all.
template <typename N>
__device__ void join(N* label, N a, N b) {
  while (a != b) {
    const N high = max(a, b), low = min(a, b);
    const N above = __ldcg(label + high);
    if (above == low || (above == high && set_parent(label + high, high, low))) return;
    a = __ldcg(label + above);
    b = __ldcg(label + low);
  }
}

template <typename P, typename N>
struct Join {
  struct Item {
    N v, label;
  };
  PlainLists<P, N> lists;
  N* label;

  __device__ Item begin(N v) const { return {v, __ldcg(label + v)}; }
  __device__ void edge(Item& item, P at) const {
    const N other = __ldcg(label + lists.read(at));
    if (other == item.label) return;
    join(label, item.label, other);
    item.label = __ldcg(label + item.v);
  }
  __device__ void end(const Item&, N, bool) const {}
};

template <typename N>
__device__ void flatten(const Grid& grid, int64_t n, N* label) {
  grid.each(n, [&](int64_t v) {
    N root = __ldcg(label + v);
    for (N above; (above = __ldcg(label + root)) != root;) root = above;
    label[v] = root;
  });
}

// The label that most of some vertices have. All threads of a block call it.
template <typename N>
__device__ N most_frequent(int64_t n, const N* label) {
  __shared__ N some[kSampledLabels];
  __shared__ unsigned best;
  const int64_t count = min(n, int64_t{kSampledLabels});
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kTraverseThreads)
    some[i] = __ldcg(label + n / count * i);
  if (threadIdx.x == 0) best = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kTraverseThreads) {
    unsigned alike = 0;
    for (int j = 0; j < count; ++j) alike += some[j] == some[i];
    atomicMax(&best, alike << 16 | static_cast<unsigned>(i));
  }
  __syncthreads();
  return some[best & 0xFFFF];
}

// Joins along all edges of the vertices in `set`.
template <typename P, typename N>
__device__ void join_all(const Grid& grid, const ComponentsCall<P, N>& call, const uint32_t* set) {
  FrontierMaker<P, N> maker(grid, call.graph);
  maker.count(set);
  grid.sync();
  const Frontier<P, N> frontier = maker.total(call.space.queue, call.space.before);
  maker.write(set, frontier, [](int64_t, uint32_t) {});
  grid.sync();
  Join<P, N> joins{call.graph.lists, call.label};
  for_each_edge(grid, call.line, frontier, joins);
  grid.sync();
}

// Puts the vertices that f is true of into `set`.
template <class F>
__device__ void choose(const Grid& grid, int64_t n, uint32_t* set, const F& f) {
  for (int64_t word = grid.warp_number(); word < traverse_words(n); word += grid.warps()) {
    const int64_t v = word * 32 + grid.lane;
    const uint32_t bits = __ballot_sync(kWholeWarp, v < n && f(v));
    if (grid.lane == 0) set[word] = bits;
  }
  grid.sync();
}

template <typename P, typename N>
__global__ __launch_bounds__(kTraverseThreads, kTraverseBlocks) void components_kernel(
    const __grid_constant__ ComponentsCall<P, N> call) {
  const Grid grid(call.space.state);
  const PlainLists<P, N>& lists = call.graph.lists;
  const int64_t n = call.graph.num_nodes;
  uint32_t* const set = call.space.sets[0];
  N* const label = call.label;
  grid.each(n, [&](int64_t v) { label[v] = static_cast<N>(v); });
  grid.sync();
  if (call.line == 1) {
    for (int64_t round = 0; round < kFirstNeighbors; ++round)
      grid.each(n, [&](int64_t v) {
        const ListOf<P> list = lists.list({v});
        if (round < list.end - list.begin)
          join(label, __ldcg(label + v),
               __ldcg(label + lists.read(list.begin, static_cast<uint32_t>(round))));
      });
    grid.sync();
  } else if (call.symmetric) {
    // A word read over the bus costs as much as a line of a list: some lists are read instead of some words
    // of all.
    choose(grid, n, set, [](int64_t v) { return v % kEachOf == 0; });
    join_all(grid, call, set);
  }
  flatten(grid, n, label);
  grid.sync();
  const N largest = call.symmetric ? most_frequent(n, label) : N{-1};
  choose(grid, n, set, [&](int64_t v) { return __ldcg(label + v) != largest; });
  join_all(grid, call, set);
  flatten(grid, n, label);
}

}  // namespace loader
