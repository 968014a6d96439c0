// Edges that are left out of a mini-batch, because a model has to predict them.
#pragma once

#include "count_below.cuh"
#include "links/cuda/links.h"

namespace loader {

__global__ void __launch_bounds__(kLinkThreads)
    insert_edges_kernel(const __grid_constant__ EdgeSet set, const int64_t* sources, const int64_t* targets,
                        int64_t count, bool reverse) {
  const int64_t i = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x;
  if (i >= count * (reverse ? 2 : 1)) return;
  const bool turned = i >= count;
  const int64_t link = turned ? i - count : i;
  const int64_t source = turned ? targets[link] : sources[link];
  const int64_t target = turned ? sources[link] : targets[link];
  const unsigned long long key = set.key(source, target), free = ~0ull;
  for (uint64_t slot = set.first_slot(key);; slot = (slot + 1) & set.mask) {
    const unsigned long long there = atomicCAS(&set.slots[slot], free, key);
    if (there == free || there == key) return;
  }
}

template <typename P, typename N>
__global__ void __launch_bounds__(kLinkThreads)
    find_edges_kernel(const __grid_constant__ EdgeSet set, const P* indptr, const N* sources,
                      const N* destinations, int64_t num_edges, P* gone, unsigned long long* found) {
  const int64_t end = indptr ? static_cast<int64_t>(indptr[set.seeds]) : num_edges;
  const int64_t all = int64_t{gridDim.x} * kLinkThreads;
  for (int64_t e = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x; e < end; e += all) {
    const int64_t source = sources[e];
    if (source >= set.seeds) continue;
    // The list that has position e is the last one that begins there or before.
    const int64_t target =
        destinations ? static_cast<int64_t>(destinations[e]) : count_below(indptr, set.seeds + 1, e + 1) - 1;
    const unsigned long long key = set.key(source, target), free = ~0ull;
    for (uint64_t slot = set.first_slot(key);; slot = (slot + 1) & set.mask) {
      const unsigned long long there = set.slots[slot];
      if (there == free) break;
      if (there == key) {
        gone[atomicAdd(found, 1ull)] = static_cast<P>(e);
        break;
      }
    }
  }
}

template <typename T, typename P>
__global__ void __launch_bounds__(kLinkThreads)
    drop_entries_kernel(const T* in, int64_t count, const P* gone, int64_t num_gone, T* out) {
  const int64_t e = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x;
  if (e >= count) return;
  const int64_t before = e > gone[num_gone - 1] ? num_gone : count_below(gone, num_gone, e);
  if (before < num_gone && gone[before] == e) return;
  out[e - before] = in[e];
}

template <typename P>
__global__ void __launch_bounds__(kLinkThreads)
    drop_from_lists_kernel(const P* indptr, int64_t count, const P* gone, int64_t num_gone, P* out) {
  const int64_t v = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x;
  if (v >= count) return;
  const int64_t begin = indptr[v];
  const int64_t before = begin > gone[num_gone - 1] ? num_gone : count_below(gone, num_gone, begin);
  out[v] = static_cast<P>(begin - before);
}

}  // namespace loader
