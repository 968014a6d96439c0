// The kernels of subgraph.h. Each block of a launch has one of kSubgraphBlocks contiguous shares of the work;
// a kernel leaves the sum of each share, and the next one adds up those before its own.
//
// A vertex's `local` is its number, or kUnmet, or kNew in the hop that meets it first.
#pragma once

#include "block_sums.cuh"
#include "sampler/cuda/subgraph.h"

namespace loader {

constexpr int32_t kUnmet = -1, kNew = -2;
constexpr int kSubgraphWarps = kSubgraphThreads / 32;

struct WorkShare {
  int64_t begin, end;
};

__device__ __forceinline__ WorkShare own_share(int64_t begin, int64_t end) {
  const int64_t each = (end - begin + kSubgraphBlocks - 1) / kSubgraphBlocks;
  const int64_t first = min(begin + each * blockIdx.x, end);
  return {first, min(first + each, end)};
}

__device__ __forceinline__ uint32_t sum_of_warp(uint32_t x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// The sum over the block's threads, known to all.
__device__ __forceinline__ uint32_t sum_of_block(uint32_t x) {
  __shared__ uint32_t sums[kSubgraphWarps];
  x = sum_of_warp(x);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  uint32_t all = 0;
#pragma unroll
  for (int w = 0; w < kSubgraphWarps; ++w) all += sums[w];
  __syncthreads();
  return all;
}

// The sum of the threads before this one; `all` receives the sum of the block.
__device__ __forceinline__ uint32_t sum_ahead(uint32_t x, uint32_t& all) {
  __shared__ uint32_t sums[kSubgraphWarps];
  const uint32_t ahead = sum_before(x, sums, all);
  __syncthreads();
  return ahead;
}

// The sums of the shares before this block's, and of all shares.
__device__ __forceinline__ uint32_t shares_before(const uint32_t* sums, uint32_t& all) {
  uint32_t mine = 0, total = 0;
  for (int b = threadIdx.x; b < kSubgraphBlocks; b += kSubgraphThreads) {
    if (b < static_cast<int>(blockIdx.x)) mine += sums[b];
    total += sums[b];
  }
  all = sum_of_block(total);
  return sum_of_block(mine);
}

// The vertices whose picks a hop keeps: those that the hop before has met first.
template <typename P, typename N>
__device__ __forceinline__ WorkShare rows_of(const SubgraphArgs<P, N>& args, int hop) {
  const int64_t* const after = args.vertices_after();
  return own_share(hop == 0 ? 0 : after[hop - 1], after[hop]);
}

// Numbers the seeds.
template <typename P, typename N>
__global__ void __launch_bounds__(kSubgraphThreads)
    start_subgraph_kernel(const __grid_constant__ SubgraphArgs<P, N> args) {
  const int32_t vertices = args.hops[args.num_hops - 1].num_src;
  for (int64_t i = int64_t{blockIdx.x} * kSubgraphThreads + threadIdx.x; i < vertices;
       i += kSubgraphBlocks * kSubgraphThreads) {
    const bool is_seed = i < args.seeds;
    args.local[i] = is_seed ? static_cast<int32_t>(i) : kUnmet;
    if (is_seed) args.places[i] = static_cast<int32_t>(i);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    args.vertices_after()[0] = args.seeds;
    args.edges_after()[0] = 0;
  }
}

// Adds up the picks of each share of the rows.
template <typename P, typename N>
__global__ void __launch_bounds__(kSubgraphThreads)
    count_edges_kernel(const __grid_constant__ SubgraphArgs<P, N> args, int hop) {
  const WorkShare rows = rows_of(args, hop);
  uint32_t sum = 0;
  for (int64_t i = rows.begin + threadIdx.x; i < rows.end; i += kSubgraphThreads) {
    const P* const at = args.hops[hop].indptr + args.places[i];
    sum += static_cast<uint32_t>(at[1] - at[0]);
  }
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) args.sums[blockIdx.x] = sum;
}

template <typename P, typename N>
__device__ __forceinline__ void take_edge(const SubgraphArgs<P, N>& args, const HopBlock<P, N>& block, P from,
                                          int64_t to, int32_t destination) {
  const auto place = static_cast<int32_t>(block.indices[from]);
  args.source[to] = place;
  args.destination[to] = destination;
  if (args.out_ids)
    args.out_ids[to] = block.wide_ids ? static_cast<const int64_t*>(block.edge_ids)[from]
                                      : static_cast<const int32_t*>(block.edge_ids)[from];
  if (args.local[place] == kUnmet) args.local[place] = kNew;
}

// Copies the picks of the rows, and marks the vertices that they meet first.
template <typename P, typename N>
__global__ void __launch_bounds__(kSubgraphThreads)
    take_edges_kernel(const __grid_constant__ SubgraphArgs<P, N> args, int hop) {
  constexpr uint32_t kLong = 32;  // picks that a whole warp copies
  const HopBlock<P, N>& block = args.hops[hop];
  const WorkShare rows = rows_of(args, hop);
  const unsigned lane = threadIdx.x % 32;
  uint32_t all;
  int64_t base = args.edges_after()[hop] + shares_before(args.sums, all);
  if (blockIdx.x == 0 && threadIdx.x == 0) args.edges_after()[hop + 1] = args.edges_after()[hop] + all;
  for (int64_t first = rows.begin; first < rows.end; first += kSubgraphThreads) {
    const int64_t i = first + threadIdx.x;
    P begin = 0;
    uint32_t degree = 0;
    if (i < rows.end) {
      const P* const at = block.indptr + args.places[i];
      begin = at[0];
      degree = static_cast<uint32_t>(at[1] - begin);
    }
    uint32_t of_block;
    const int64_t to = base + sum_ahead(degree, of_block);
    if (degree < kLong)
      for (uint32_t k = 0; k < degree; ++k)
        take_edge(args, block, static_cast<P>(begin + k), to + k, static_cast<int32_t>(i));
    for (unsigned left = __ballot_sync(~0u, degree >= kLong); left != 0; left &= left - 1) {
      const int from = __ffs(left) - 1;
      const P its_begin = __shfl_sync(~0u, begin, from);
      const uint32_t its_degree = __shfl_sync(~0u, degree, from);
      const int64_t its_to = __shfl_sync(~0u, to, from), row = __shfl_sync(~0u, i, from);
      for (uint32_t k = lane; k < its_degree; k += 32)
        take_edge(args, block, static_cast<P>(its_begin + k), its_to + k, static_cast<int32_t>(row));
    }
    base += of_block;
  }
}

// Adds up the new vertices of each share of the places.
template <typename P, typename N>
__global__ void __launch_bounds__(kSubgraphThreads)
    count_new_kernel(const __grid_constant__ SubgraphArgs<P, N> args, int hop) {
  const WorkShare places = own_share(args.seeds, args.hops[hop].num_src);
  uint32_t sum = 0;
  for (int64_t i = places.begin + threadIdx.x; i < places.end; i += kSubgraphThreads)
    sum += args.local[i] == kNew;
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) args.sums[blockIdx.x] = sum;
}

template <typename P, typename N>
__global__ void __launch_bounds__(kSubgraphThreads)
    count_before_kernel(const __grid_constant__ SubgraphArgs<P, N> args, int hop) {
  const int32_t end = args.hops[hop].num_src;
  const WorkShare places = own_share(args.seeds, end);
  uint32_t all;
  uint32_t base = shares_before(args.sums, all);
  for (int64_t first = places.begin; first < places.end; first += kSubgraphThreads) {
    const int64_t i = first + threadIdx.x;
    const bool is_new = i < places.end && args.local[i] == kNew;
    uint32_t of_block;
    const uint32_t ahead = sum_ahead(is_new, of_block);
    if (i < places.end) args.before[i] = base + ahead;
    base += of_block;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    args.before[end] = all;
    args.vertices_after()[hop + 1] = args.vertices_after()[hop] + all;
  }
}

// Numbers the new vertices by ascending id. Places that one hop of the mini-batch met first have ascending
// ids, so in each of these groups a search finds how many come earlier.
template <typename P, typename N>
__global__ void __launch_bounds__(kSubgraphThreads)
    number_new_kernel(const __grid_constant__ SubgraphArgs<P, N> args, int hop) {
  const int32_t end = args.hops[hop].num_src;
  for (int64_t i = args.seeds + int64_t{blockIdx.x} * kSubgraphThreads + threadIdx.x; i < end;
       i += kSubgraphBlocks * kSubgraphThreads) {
    if (args.local[i] != kNew) continue;
    const N id = args.nodes[i];
    uint32_t rank = 0;
    for (int group = 0; group <= hop; ++group) {
      const int32_t begin = args.first_place(group);
      int32_t low = begin, high = args.hops[group].num_src;
      if (i >= low && i < high) {
        low = static_cast<int32_t>(i);
      } else {
        while (low < high) {
          const int32_t mid = low + (high - low) / 2;
          if (args.nodes[mid] < id)
            low = mid + 1;
          else
            high = mid;
        }
      }
      rank += args.before[low] - args.before[begin];
    }
    const auto number = static_cast<int32_t>(args.vertices_after()[hop] + rank);
    args.local[i] = number;
    args.places[number] = static_cast<int32_t>(i);
  }
}

template <typename P, typename N>
__global__ void __launch_bounds__(kSubgraphThreads)
    finish_subgraph_kernel(const __grid_constant__ SubgraphArgs<P, N> args) {
  const int64_t vertices = args.vertices_after()[args.num_hops], edges = args.edges_after()[args.num_hops];
  const int64_t all = int64_t{kSubgraphBlocks} * kSubgraphThreads;
  const int64_t first = int64_t{blockIdx.x} * kSubgraphThreads + threadIdx.x;
  for (int64_t i = first; i < vertices; i += all) args.out_nodes[i] = args.nodes[args.places[i]];
  for (int64_t e = first; e < edges; e += all) {
    args.out_edges[e] = args.local[args.source[e]];
    args.out_edges[edges + e] = args.destination[e];
  }
}

}  // namespace loader
