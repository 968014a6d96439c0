// Which ids of a gather have their rows in host memory only.
#pragma once

#include "block_sums.cuh"
#include "features/cuda/gather.h"
#include "features/cuda/ids.cuh"

namespace loader {

static_assert(kOrderThreads == 1024, "sum_before wants it");

// A thread an id. Ids out of range get no mark: whoever reads the rows reports them.
__global__ void __launch_bounds__(kOrderThreads)
    mark_misses(const __grid_constant__ GatherArgs args, uint32_t* __restrict__ marks) {
  const int64_t i = int64_t{blockIdx.x} * kOrderThreads + threadIdx.x;
  bool missed = false;
  if (i < args.n) {
    const int64_t id = id_at(args, i);
    missed = in_range(args, id) && __ldg(args.slots + id) < 0;
  }
  const uint32_t word = __ballot_sync(~0u, missed);
  if (threadIdx.x % kWarp == 0 && i < args.n) marks[i / kWarp] = word;
}

// A thread an id. Those of one block are written in order, blocks as they come.
__global__ void __launch_bounds__(kOrderThreads)
    find_misses(const __grid_constant__ GatherArgs args, const int64_t from,
                const __grid_constant__ MissIds to) {
  __shared__ uint32_t warps[kOrderThreads / kWarp];
  __shared__ uint32_t ranges[kMissRanges];
  __shared__ unsigned long long first;
  if (threadIdx.x < kMissRanges) ranges[threadIdx.x] = 0;
  __syncthreads();
  const int64_t i = int64_t{blockIdx.x} * kOrderThreads + threadIdx.x;
  int64_t id = 0;
  bool found = false;
  if (i < args.n) {
    id = id_at(args, i);
    if (!in_range(args, id)) {
      to.counts[1] = 1;
    } else if (__ldg(args.slots + id) < 0) {
      found = id >= from;
      atomicAdd(&ranges[id / to.rows_a_range], 1u);
    }
  }
  const uint32_t before = sum_before(found, warps);
  if (threadIdx.x == kOrderThreads - 1) {
    const uint32_t all = before + found;
    first = all > 0 ? atomicAdd(to.counts, static_cast<unsigned long long>(all)) : 0;
  }
  __syncthreads();
  if (threadIdx.x < kMissRanges && ranges[threadIdx.x] > 0)
    atomicAdd(to.counts + 2 + threadIdx.x, static_cast<unsigned long long>(ranges[threadIdx.x]));
  if (!found) return;
  const int64_t at = static_cast<int64_t>(first) + before;
  to.positions[at] = i;
  if (args.wide_ids)
    static_cast<int64_t*>(to.ids)[at] = id;
  else
    static_cast<int32_t*>(to.ids)[at] = static_cast<int32_t>(id);
}

}  // namespace loader
