// Sums over the threads of a large block.
#pragma once

#include <cstdint>

namespace loader {

// The sum of `x` of all threads of the block before this one. All threads of a block of 1,024 call it.
// `warps`: [32] of shared memory; after a __syncthreads it may be used again.
__device__ __forceinline__ uint32_t sum_before(uint32_t x, uint32_t* warps) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t up_to = x;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const uint32_t below = __shfl_up_sync(~0u, up_to, offset);
    if (lane >= offset) up_to += below;
  }
  if (lane == 31) warps[warp] = up_to;
  __syncthreads();
  if (warp == 0) {
    const uint32_t own = warps[lane];
    uint32_t sum = own;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const uint32_t below = __shfl_up_sync(~0u, sum, offset);
      if (lane >= offset) sum += below;
    }
    warps[lane] = sum - own;
  }
  __syncthreads();
  return warps[warp] + up_to - x;
}

}  // namespace loader
