// The order in which the rows of a gather are read: roughly by where they lie.
//
// A GPU reaches host memory through translations of its pages, of which it keeps few: over a table of
// gigabytes, ids in random order find none that is still there. On an H200 (rows of 400 bytes, 8 GB of them)
// they are read at 24 % of the bandwidth of the bus, in the order made here at 84 %.
//
// A counting sort into buckets of equally many rows, in two kernels. Which of two ids of one bucket comes
// first is chance, and shows nowhere: a row goes where its id stood. Ids most of which lie in the bucket of
// the one before, as those of a mini-batch's hops do, keep their order, which is better than that of buckets.
// The host is told that they did; with a cache it has the next ones looked at less often.
#pragma once

#include "block_sums.cuh"
#include "features/cuda/gather.h"
#include "features/cuda/ids.cuh"

namespace loader {

static_assert(kOrderThreads == 1024, "sum_before wants it");

// Ids are left as they are if at most one in this many lies in another bucket than the one before.
constexpr int64_t kIdsPerChange = 4;

__device__ __forceinline__ uint32_t bucket_of(const GatherArgs& args, int64_t id, int64_t rows_a_bucket) {
  return in_range(args, id) ? static_cast<uint32_t>(id / rows_a_bucket) : 0;
}

__device__ __forceinline__ bool is_in_order(const GatherArgs& args, int64_t changes) {
  return changes * kIdsPerChange <= args.n;
}

// Counts the ids of each bucket and the changes; the last block adds the counts up.
__global__ void __launch_bounds__(kOrderThreads)
    count_ids(const __grid_constant__ GatherArgs args, const int64_t rows_a_bucket, Order* order) {
  __shared__ uint32_t warps[kOrderThreads / kWarp];
  __shared__ uint32_t counts[kBuckets];
  __shared__ uint32_t changes;
  __shared__ bool last;
  counts[threadIdx.x] = 0;
  if (threadIdx.x == 0) changes = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * kIdsABlock, end = min(begin + kIdsABlock, args.n);
  uint32_t mine = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kOrderThreads) {
    const uint32_t bucket = bucket_of(args, id_at(args, i), rows_a_bucket);
    atomicAdd(&counts[bucket], 1u);
    mine += i > 0 && bucket != bucket_of(args, id_at(args, i - 1), rows_a_bucket);
  }
  if (mine > 0) atomicAdd(&changes, mine);
  __syncthreads();
  if (counts[threadIdx.x] > 0) atomicAdd(&order->begins[threadIdx.x], counts[threadIdx.x]);
  if (threadIdx.x == 0 && changes > 0) atomicAdd(&order->changes, changes);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&order->counted, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  order->begins[threadIdx.x] = sum_before(__ldcg(&order->begins[threadIdx.x]), warps);
  if (threadIdx.x == 0)
    static_cast<volatile Notes*>(args.notes)->in_order = is_in_order(args, __ldcg(&order->changes));
}

// positions[i]: where the id stands that is read as the `i`-th.
__global__ void __launch_bounds__(kOrderThreads)
    place_ids(const __grid_constant__ GatherArgs args, const int64_t rows_a_bucket, Order* order,
              uint32_t* positions) {
  const int64_t begin = blockIdx.x * kIdsABlock, end = min(begin + kIdsABlock, args.n);
  if (is_in_order(args, order->changes)) {
    for (int64_t i = begin + threadIdx.x; i < end; i += kOrderThreads)
      positions[i] = static_cast<uint32_t>(i);
    return;
  }
  __shared__ uint32_t counts[kBuckets];
  counts[threadIdx.x] = 0;
  __syncthreads();
  uint32_t bucket[kIdsAThread], rank[kIdsAThread];
#pragma unroll
  for (int k = 0; k < kIdsAThread; ++k) {
    const int64_t i = begin + threadIdx.x + k * kOrderThreads;
    if (i >= end) continue;
    bucket[k] = bucket_of(args, id_at(args, i), rows_a_bucket);
    rank[k] = atomicAdd(&counts[bucket[k]], 1u);
  }
  __syncthreads();
  const uint32_t count = counts[threadIdx.x];
  // From here on the place of the block's first id of that bucket.
  if (count > 0) counts[threadIdx.x] = atomicAdd(&order->begins[threadIdx.x], count);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kIdsAThread; ++k) {
    const int64_t i = begin + threadIdx.x + k * kOrderThreads;
    if (i < end) positions[counts[bucket[k]] + rank[k]] = static_cast<uint32_t>(i);
  }
}

}  // namespace loader
