// A barrier of blocks that are all resident at once.
#pragma once

#include <cstdint>

// What a thread does between two looks at a barrier: nothing. Tests on the host, where blocks share
// processors, give way to another block.
#ifndef LOADER_POLL
#define LOADER_POLL()
#endif

// What a thread tells when it is past one: nothing. Tests on the host note it.
#ifndef LOADER_PAST_BARRIER
#define LOADER_PAST_BARRIER()
#endif

namespace loader {

// Barrier of `size` resident blocks, of which this is number `rank`. `state` is zero before the first use and
// may be used again at once: its top bit flips with each barrier.
__device__ __forceinline__ void group_barrier(unsigned long long* state, int rank, int size) {
  __syncthreads();
  if (threadIdx.x == 0) {
    constexpr unsigned kFlip = 0x80000000u;
    auto* const word = reinterpret_cast<unsigned*>(state);
    __threadfence();
    const unsigned before = atomicAdd(word, rank == 0 ? kFlip - (size - 1) : 1u);
    while (((before ^ *reinterpret_cast<volatile unsigned*>(word)) & kFlip) == 0) {
      LOADER_POLL();
    }
    __threadfence();
  }
  __syncthreads();
  LOADER_PAST_BARRIER();
}

}  // namespace loader
