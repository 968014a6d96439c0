// Sums and prefix sums of warps, and shares of work.
#pragma once

#include "gpu/grid_barrier.cuh"
#include "sampler/cuda/sampler.h"

namespace loader {

constexpr uint32_t kFullMask = 0xFFFFFFFFu;

template <typename T>
__device__ __forceinline__ T warp_sum(T x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullMask, x, offset);
  return x;
}

template <typename T>
__device__ __forceinline__ T warp_max(T x) {
  for (int offset = 16; offset > 0; offset /= 2) x = max(x, __shfl_xor_sync(kFullMask, x, offset));
  return x;
}

// Exclusive prefix over the lanes; `total` receives the sum.
__device__ __forceinline__ uint32_t warp_exclusive(uint32_t x, uint32_t& total) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t sum = x;
  for (uint32_t offset = 1; offset < 32; offset *= 2) {
    const uint32_t below = __shfl_up_sync(kFullMask, sum, offset);
    if (lane >= offset) sum += below;
  }
  total = __shfl_sync(kFullMask, sum, 31);
  return sum - x;
}

// The same for several values a lane at once; the scans overlap.
template <int M>
__device__ __forceinline__ void warp_exclusive(uint32_t (&x)[M], uint32_t (&total)[M]) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t sum[M];
#pragma unroll
  for (int j = 0; j < M; ++j) sum[j] = x[j];
#pragma unroll
  for (uint32_t offset = 1; offset < 32; offset *= 2) {
#pragma unroll
    for (int j = 0; j < M; ++j) {
      const uint32_t below = __shfl_up_sync(kFullMask, sum[j], offset);
      if (lane >= offset) sum[j] += below;
    }
  }
#pragma unroll
  for (int j = 0; j < M; ++j) {
    total[j] = __shfl_sync(kFullMask, sum[j], 31);
    x[j] = sum[j] - x[j];
  }
}

// Exclusive prefix over the threads of the block; `total` receives the sum. All threads call it.
__device__ __forceinline__ uint32_t block_exclusive(uint32_t x, uint32_t& total) {
  __shared__ uint32_t sums[kWarps];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t of_warp;
  const uint32_t within = warp_exclusive(x, of_warp);
  if (lane == 0) sums[warp] = of_warp;
  __syncthreads();
  const uint32_t sum = lane < kWarps ? sums[lane] : 0;
  const uint32_t before = warp_exclusive(sum, total);
  const uint32_t warps_before = __shfl_sync(kFullMask, before, warp);
  __syncthreads();  // `sums` may be used again
  return warps_before + within;
}

// Asks memory for the first `count` entries of a list, and for at most 32 lines.
template <typename T>
__device__ __forceinline__ void prefetch_first(const T* list, uint32_t count) {
  constexpr uint32_t kLine = 128 / sizeof(T);
  const uint32_t first = threadIdx.x % 32 * kLine;
  if (first < count) prefetch(list + first);
}

// The first place in [begin, end) that is not `before`, or `end`; the places until there are. By a warp.
template <typename F>
__device__ __forceinline__ int64_t first_by_warp(int64_t begin, int64_t end, const F& before) {
  const int64_t lane = threadIdx.x % 32;
  while (end - begin > 32) {  // it is in [begin, end]
    const int64_t step = (end - begin + 31) / 32, at = begin + step * lane;
    const int count = __popc(__ballot_sync(kFullMask, at < end && before(at)));
    if (count == 0) return begin;
    end = min(end, begin + step * count);
    begin += step * (count - 1) + 1;
  }
  return begin + __popc(__ballot_sync(kFullMask, begin + lane < end && before(begin + lane)));
}

struct Share {
  int64_t begin, end;
};

// Part `i` of `parts` contiguous, almost equal parts of [0, n).
__device__ __forceinline__ Share share(int64_t n, int64_t parts, int64_t i) {
  const int64_t each = n / parts, rest = n % parts;
  const int64_t begin = each * i + min(i, rest);
  return {begin, begin + each + (i < rest)};
}

}  // namespace loader
