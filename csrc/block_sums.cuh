// Sums over the threads of a block.
#pragma once

#include <cstdint>

namespace loader {

// The sum of `x` of the lanes of the warp up to this one. All of them call it.
template <typename T>
__device__ __forceinline__ T sum_up_to(T x) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const T below = __shfl_up_sync(~0u, x, offset);
    if (lane >= offset) x += below;
  }
  return x;
}

// The sum of `x` of all threads of the block before this one; `all` receives that of all threads. All threads
// of the block, of `kWarps` warps, call it. `warps`: shared memory, which may be used again after a
// __syncthreads.
template <int kWarps, typename T>
__device__ __forceinline__ T sum_before(T x, T (&warps)[kWarps], T& all) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const T up_to = sum_up_to(x);
  if (lane == 31) warps[warp] = up_to;
  __syncthreads();
  T before = 0;
  all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += warps[w];
    all += warps[w];
  }
  return before + up_to - x;
}

// The same without the sum of all, of a block of 1,024 threads. `warps`: [32] of shared memory.
__device__ __forceinline__ uint32_t sum_before(uint32_t x, uint32_t* warps) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t up_to = sum_up_to(x);
  if (lane == 31) warps[warp] = up_to;
  __syncthreads();
  if (warp == 0) {
    const uint32_t own = warps[lane];
    warps[lane] = sum_up_to(own) - own;
  }
  __syncthreads();
  return warps[warp] + up_to - x;
}

}  // namespace loader
