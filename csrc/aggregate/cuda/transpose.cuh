// A block in the order of its sources: the kernels. And the one that writes captured blocks.
#pragma once

#include <type_traits>

#include "aggregate/cuda/transpose.h"
#include "aggregate/cuda/vectors.cuh"
#include "block_sums.cuh"
#include "count_below.cuh"

namespace loader {
template <typename P>
using Unsigned = std::conditional_t<sizeof(P) == 8, unsigned long long, unsigned int>;

template <typename P>
__device__ __forceinline__ P fetch_add(P* p, P x) {
  return static_cast<P>(atomicAdd(reinterpret_cast<Unsigned<P>*>(p), static_cast<Unsigned<P>>(x)));
}

// Edges before the first row's and beyond the last one's belong to none: a padded mini-batch has some.
template <typename P, typename I>
__device__ __forceinline__ int64_t edges_of_rows(const DeviceBlock<P, I>& block) {
  return min(block.num_edges, static_cast<int64_t>(block.indptr[block.num_dst]));
}

// Counts each source's edges, and gives each edge its place among those of its source.
template <typename P, typename I>
__global__ void __launch_bounds__(kTransposeThreads)
    count_edges(DeviceBlock<P, I> found, P* length, P* rank) {
  const DeviceBlock<P, I> block = settled(found);
  const int64_t e = int64_t{blockIdx.x} * kTransposeThreads + threadIdx.x;
  const I source = e < block.num_edges ? block.indices[e] : I(0);  // on its way beside the number of edges
  if (e < edges_of_rows(block) && e >= static_cast<int64_t>(block.indptr[0]))
    rank[e] = fetch_add(length + source, P(1));
}

__device__ __forceinline__ void list_if_long(int64_t source, int64_t length, unsigned long long* counters,
                                             int64_t* long_rows) {
  if (length > kLongRow) long_rows[atomicAdd(counters + 1, 1ULL)] = source;
}

// Gives each source a stretch of the edges. Blocks take theirs in the order in which they come: the stretches
// need no order, so no block waits for another.
template <typename P>
__global__ void __launch_bounds__(kTransposeThreads)
    place_sources(const P* length, int64_t num_src, P* begin, unsigned long long* counters,
                  int64_t* long_rows) {
  __shared__ int64_t warp_total[kTransposeThreads / 32];
  __shared__ int64_t block_begin;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first = int64_t{blockIdx.x} * kSourcesPerBlock + int64_t{threadIdx.x} * kSourcesPerThread;
  int64_t n[kSourcesPerThread], mine = 0;
#pragma unroll
  for (int k = 0; k < kSourcesPerThread; ++k) {
    n[k] = first + k < num_src ? length[first + k] : 0;
    mine += n[k];
    list_if_long(first + k, n[k], counters, long_rows);
  }
  const int64_t up_to = sum_up_to(mine);
  if (lane == 31) warp_total[warp] = up_to;
  __syncthreads();
  if (threadIdx.x == 0) {
    int64_t sum = 0;
    for (int w = 0; w < kTransposeThreads / 32; ++w) {
      const int64_t total = warp_total[w];
      warp_total[w] = sum;
      sum += total;
    }
    block_begin = static_cast<int64_t>(atomicAdd(counters, static_cast<unsigned long long>(sum)));
  }
  __syncthreads();
  int64_t at = block_begin + warp_total[warp] + up_to - mine;
#pragma unroll
  for (int k = 0; k < kSourcesPerThread; ++k) {
    if (first + k < num_src) begin[first + k] = static_cast<P>(at);
    at += n[k];
  }
}

// The row in [low, high) that holds edge e: the last one that begins at or before e.
template <typename P>
__device__ __forceinline__ int64_t row_of_edge(const P* indptr, int64_t e, int64_t low, int64_t high) {
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (static_cast<int64_t>(indptr[middle]) <= e) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// A block of threads has neighboring edges, so their rows lie between those of the first and the last one.
template <typename P, typename I>
__global__ void __launch_bounds__(kTransposeThreads) fill(DeviceBlock<P, I> found, TransposedBlock<P, I> t) {
  __shared__ int64_t bound[2];
  const DeviceBlock<P, I> block = settled(found);
  const int64_t first = int64_t{blockIdx.x} * kTransposeThreads, e = first + threadIdx.x;
  const int64_t num_edges = edges_of_rows(block);
  if (first >= num_edges) return;  // there may be fewer edges than room for them
  if (threadIdx.x < 2) {
    const int64_t edge = threadIdx.x == 0 ? first : min(first + kTransposeThreads, num_edges) - 1;
    bound[threadIdx.x] = row_of_edge(block.indptr, edge, 0, block.num_dst);
  }
  __syncthreads();
  if (e >= num_edges || e < static_cast<int64_t>(block.indptr[0])) return;
  const int64_t row = row_of_edge(block.indptr, e, bound[0], bound[1] + 1);
  t.destinations[t.begin[block.indices[e]] + t.rank[e]] = static_cast<I>(row);
}

template <typename P, typename I>
__global__ void __launch_bounds__(kTransposeThreads)
    place_sorted(DeviceBlock<P, I> block, const I* sorted, TransposedBlock<P, I> t) {
  const int64_t s = int64_t{blockIdx.x} * kTransposeThreads + threadIdx.x;
  if (s >= block.num_src) return;
  const int64_t begin = count_below(sorted, block.num_edges, s);
  const int64_t length = count_below(sorted, block.num_edges, s + 1) - begin;
  t.begin[s] = static_cast<P>(begin);
  t.length[s] = static_cast<P>(length);
  list_if_long(s, length, t.counters, t.long_rows);
}

template <typename P, typename I>
__global__ void __launch_bounds__(kTransposeThreads)
    fill_sorted(DeviceBlock<P, I> block, const int64_t* order, TransposedBlock<P, I> t) {
  const int64_t i = int64_t{blockIdx.x} * kTransposeThreads + threadIdx.x;
  if (i < block.num_edges)
    t.destinations[i] = static_cast<I>(row_of_edge(block.indptr, order[i], 0, block.num_dst));
}

// The values travel as the launch's arguments, so the host's own may change at once.
template <int UnitBytes>
__global__ void __launch_bounds__(kTransposeThreads)
    write_captured(CapturedBlocks blocks, int count, CapturedBlock* to, CapturedCopy copy) {
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < count) to[threadIdx.x] = blocks.of[threadIdx.x];
  using Unit = Word<UnitBytes>;
  const auto* from = static_cast<const Unit*>(copy.from);
  auto* into = static_cast<Unit*>(copy.to);
  const int64_t units = copy.bytes / static_cast<int64_t>(sizeof(Unit));
  for (int64_t i = int64_t{blockIdx.x} * kTransposeThreads + threadIdx.x; i < units;
       i += int64_t{gridDim.x} * kTransposeThreads)
    into[i] = from[i];
}

}  // namespace loader
