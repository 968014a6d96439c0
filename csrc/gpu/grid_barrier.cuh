// A barrier of blocks that are all resident at once.
#pragma once

#include <cstdint>

#include "gpu/spread_barrier.h"

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

#ifdef __CUDACC__
// (If kernels run on the host, these come from there.) They order a thread's memory with that of others as
// two fences around them would, in three quarters of the time of a barrier of a thousand blocks.
__device__ __forceinline__ unsigned add_and_order(unsigned* at, unsigned x) {
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(x) : "memory");
  return before;
}
// What is there now. It orders nothing, and leaves the L1 of the multiprocessor as it is.
__device__ __forceinline__ unsigned read_anew(const unsigned* at) {
  unsigned there;
  asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(there) : "l"(at) : "memory");
  return there;
}
__device__ __forceinline__ unsigned read_and_order(const unsigned* at) {
  unsigned there;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(there) : "l"(at) : "memory");
  return there;
}
#endif

// Barrier of `size` resident blocks, of which this is number `rank`. `state` is zero before the first use and
// may be used again at once: its top bit flips with each barrier.
__device__ __forceinline__ void group_barrier(unsigned long long* state, int rank, int size) {
  __syncthreads();
  if (threadIdx.x == 0) {
    constexpr unsigned kFlip = 0x80000000u;
    auto* const word = reinterpret_cast<unsigned*>(state);
    const unsigned before = add_and_order(word, rank == 0 ? kFlip - (size - 1) : 1u);
    while (((before ^ read_anew(word)) & kFlip) == 0) {
      LOADER_POLL();
    }
    read_and_order(word);  // once, as it empties the L1, also for blocks that still work
  }
  __syncthreads();
  LOADER_PAST_BARRIER();
}

// The same, where a thousand blocks that look at one word would get in the way of those that arrive.
__device__ __forceinline__ void group_barrier(SpreadBarrier* state, int rank, int size) {
  __syncthreads();
  if (threadIdx.x == 0) {
    constexpr unsigned kFlip = 0x80000000u;
    const unsigned own = rank == 0 ? kFlip - (size - 1) : 1u;
    const unsigned before = add_and_order(&state->arrived.value, own), after = ~before & kFlip;
    if (((before + own) & kFlip) == after) {
      __threadfence();
      for (auto& line : state->passed) *static_cast<volatile unsigned*>(&line.value) = after;
    } else {
      const unsigned* const passed = &state->passed[rank % 16].value;
      while (read_anew(passed) != after) {
        LOADER_POLL();
      }
      read_and_order(passed);
    }
  }
  __syncthreads();
  LOADER_PAST_BARRIER();
}

}  // namespace loader
