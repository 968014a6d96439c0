// The ends of a mini-batch's links: negatives are drawn, then all ends are sorted and each is kept once.
#pragma once

#include "block_sums.cuh"
#include "links/cuda/links.h"

namespace loader {

// The target of a negative link that all tries have missed: every thread of the block looks through a part of
// the nodes. As the end of `negative_target`.
template <typename P, typename N>
__device__ int64_t target_by_rank(const Draws& draws, const EndCounts& counts, const KnownEdges<P, N>& known,
                                  int64_t source) {
  __shared__ uint32_t free_of[kLinkThreads];
  __shared__ long long chosen;
  const uint64_t n = counts.targets;
  const auto is_free = [&](int64_t v) { return !counts.is_loop(source, v) && !known.has(source, v); };
  const auto begin = static_cast<int64_t>(n * threadIdx.x / kLinkThreads);
  const auto end = static_cast<int64_t>(n * (threadIdx.x + 1) / kLinkThreads);
  uint32_t free = 0;
  for (int64_t v = begin; v < end; ++v) free += is_free(v);
  free_of[threadIdx.x] = free;
  if (threadIdx.x == 0) chosen = -1;
  __syncthreads();
  uint32_t before = 0, all = 0;
  for (unsigned t = 0; t < kLinkThreads; ++t) {
    if (t < threadIdx.x) before += free_of[t];
    all += free_of[t];
  }
  if (all > 0) {
    const uint32_t rank = static_cast<uint32_t>(drawn_end(draws, all, kTriesOfTarget, true));
    if (rank >= before && rank - before < free) {
      uint32_t left = rank - before;
      for (int64_t v = begin;; ++v)
        if (is_free(v) && left-- == 0) {
          chosen = v;
          break;
        }
    }
  }
  __syncthreads();
  const int64_t found = chosen;
  __syncthreads();  // the memory may be used again
  return found;
}

// A thread has a positive link and a negative one.
template <typename P, typename N>
__global__ void __launch_bounds__(kLinkThreads)
    link_ends_kernel(const __grid_constant__ LinkEnds ends, const __grid_constant__ KnownEdges<P, N> known) {
  const int64_t i = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x;
  if (i < ends.links) {
    ends.out[i] = ends.source_id(ends.pair(2 * i));
    ends.out[ends.links + i] = ends.target_id(ends.pair(2 * i + 1));
  }
  int64_t* const drawn = ends.out + 2 * ends.links;
  const Draws draws{ends.key, static_cast<uint64_t>(i), 0};
  if (ends.each == 0) {
    if (i >= ends.negatives) return;
    int64_t source, target;
    const bool found = negative_pair(draws, ends.counts, ends.strict, known, &source, &target);
    drawn[i] = ends.source_id(source);
    drawn[ends.negatives + i] = found ? ends.target_id(target) : -1;
    return;
  }
  // `negative_target`, of which a block's threads share the last resort.
  __shared__ int64_t sources[kLinkThreads];
  int64_t target = -1;
  bool missed = false;
  if (i < ends.negatives) {
    const int64_t source = ends.pair(2 * (i / ends.each));
    sources[threadIdx.x] = source;
    if (ends.source_id(source) < 0) {
      target = 0;  // the source is refused by who sorts the ends
    } else {
      missed = true;
      for (uint32_t t = 0; missed && t < kTriesOfTarget; ++t) {
        target = drawn_end(draws, ends.counts.targets, t, true);
        missed = ends.strict && (ends.counts.is_loop(source, target) || known.has(source, target));
      }
    }
  }
  __shared__ uint32_t missing[kLinkThreads];
  missing[threadIdx.x] = missed;
  if (__syncthreads_or(missed)) {
    for (unsigned t = 0; t < kLinkThreads; ++t) {
      if (!missing[t]) continue;
      const Draws its{ends.key, static_cast<uint64_t>(int64_t{blockIdx.x} * kLinkThreads + t), 0};
      const int64_t found = target_by_rank(its, ends.counts, known, sources[t]);
      if (t == threadIdx.x) target = found;
    }
  }
  if (i < ends.negatives) drawn[i] = ends.target_id(target);
}

// One block sorts (end, place) by a bitonic network (Batcher, "Sorting networks and their applications",
// 1968).
template <typename N>
__global__ void __launch_bounds__(kSortThreads)
    distinct_ends_kernel(const int64_t* ends, int64_t count, int64_t num_nodes, N* seeds, int64_t* local,
                         DistinctEnds* outcome) {
  constexpr int kPlaceBits = 12;
  static_assert(kMostSorted == 1 << kPlaceBits, "a place has its bits");
  __shared__ uint64_t keys[kMostSorted];
  __shared__ uint32_t warps[kSortThreads / 32];
  __shared__ unsigned bad;
  int length = 2 * kSortThreads;
  while (length < count) length *= 2;
  if (threadIdx.x == 0) bad = kMostSorted;
  __syncthreads();
  for (int i = threadIdx.x; i < length; i += kSortThreads) {
    uint64_t key = ~uint64_t{0};
    if (i < count) {
      const int64_t end = ends[i];
      key = static_cast<uint64_t>(end) << kPlaceBits | static_cast<unsigned>(i);
      if (end < 0 || end >= num_nodes) atomicMin(&bad, static_cast<unsigned>(i));
    }
    keys[i] = key;
  }
  __syncthreads();
  for (int size = 2; size <= length; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      for (int i = threadIdx.x; i < length / 2; i += kSortThreads) {
        const int low = 2 * i - (i & (stride - 1)), high = low + stride;
        const uint64_t a = keys[low], b = keys[high];
        if ((a > b) == ((low & size) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
      __syncthreads();
    }
  }
  // A thread has keys that follow each other.
  const int each = length / kSortThreads, begin = static_cast<int>(threadIdx.x) * each;
  const auto is_first = [&](int i) {
    return i < count && (i == 0 || keys[i] >> kPlaceBits != keys[i - 1] >> kPlaceBits);
  };
  uint32_t firsts = 0;
  for (int i = begin; i < begin + each; ++i) firsts += is_first(i);
  uint32_t rank = sum_before(firsts, warps);
  for (int i = begin; i < begin + each && i < count; ++i) {
    if (is_first(i)) seeds[rank++] = static_cast<N>(keys[i] >> kPlaceBits);
    local[keys[i] & (kMostSorted - 1)] = rank - 1;
  }
  if (threadIdx.x == kSortThreads - 1) *outcome = {rank, bad == kMostSorted ? -1 : static_cast<int64_t>(bad)};
}

}  // namespace loader
