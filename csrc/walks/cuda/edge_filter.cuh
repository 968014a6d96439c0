// The filter of a graph's edges, made on the GPU; and vertices at random.
#pragma once

#include <cstdint>

#include "graph/edge_filter.h"
#include "walks/cuda/thread_blocks.h"
#include "walks/negatives.h"

namespace loader {

// Marks all edges in `filter`, whose words are zero. Threads of a warp take edges that lie side by side.
template <typename P, typename N>
__global__ void fill_filter_kernel(PlainLists<P, N> lists, int64_t num_nodes, EdgeFilter filter) {
  const int64_t num_edges = count_entries(lists, num_nodes);
  const int64_t thread = int64_t{blockIdx.x} * kFilterThreads + threadIdx.x;
  int64_t at = thread / 32 * (32 * kFilterEdges) + thread % 32;
  if (at >= num_edges) return;
  int64_t v = vertex_at(lists, num_nodes, at);
  for (int i = 0; i < kFilterEdges && at < num_edges; ++i, at += 32) {
    while (lists.list({v}).end <= at) ++v;
    const auto mark =
        filter.mark(static_cast<uint64_t>(v), static_cast<uint64_t>(lists.read(static_cast<P>(at))));
    atomicOr(reinterpret_cast<unsigned long long*>(filter.words + mark.word),
             static_cast<unsigned long long>(mark.bits));
  }
}

// out [walkers, count]: row i are the negatives of walker `first_lane` + i. A thread draws four of them.
template <typename N>
__global__ void negatives_kernel(Negatives law, uint64_t first_lane, int64_t walkers, int64_t count, N* out) {
  const int64_t fours = (count + 3) / 4;
  const int64_t i = int64_t{blockIdx.x} * kNegativeThreads + threadIdx.x;
  if (i >= walkers * fours) return;
  const int64_t walker = i / fours, begin = i % fours * 4;
  N four[4];
  law.four(first_lane + static_cast<uint64_t>(walker), static_cast<uint32_t>(begin / 4), four);
  for (int k = 0; k < 4 && begin + k < count; ++k) out[walker * count + begin + k] = four[k];
}

}  // namespace loader
