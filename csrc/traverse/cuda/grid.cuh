// The threads of one launch, which meet at barriers.
#pragma once

#include <cstdint>

#include "gpu/grid_barrier.cuh"
#include "traverse/cuda/space.h"

namespace loader {

constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;

struct Grid {
  GridState* state;
  int block, blocks, lane, warp;

  __device__ explicit Grid(GridState* shared)
      : state(shared),
        block(static_cast<int>(blockIdx.x)),
        blocks(static_cast<int>(gridDim.x)),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32) {}

  __device__ void sync() const { group_barrier(&state->barrier, block, blocks); }

  // Of this thread and of this warp. Neighboring warps belong to different blocks: little work is spread.
  __device__ int64_t thread() const { return warp_number() * 32 + lane; }
  __device__ int64_t threads() const { return warps() * 32; }
  __device__ int64_t warp_number() const { return int64_t{warp} * blocks + block; }
  __device__ int64_t warps() const { return int64_t{blocks} * kTraverseWarps; }

  // f(i) for each i in [0, n), neighbors by neighboring threads.
  template <class F>
  __device__ void each(int64_t n, const F& f) const {
    for (int64_t i = thread(); i < n; i += threads()) f(i);
  }
};

template <typename T>
__device__ __forceinline__ T sum_of_warp(T x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(kWholeWarp, x, offset);
  return x;
}

// The sums over all threads of the block. All threads call it.
template <int M>
__device__ __forceinline__ void sum_of_block(uint64_t (&x)[M]) {
  __shared__ uint64_t sums[M][kTraverseWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int j = 0; j < M; ++j) {
    x[j] = sum_of_warp(x[j]);
    if (lane == 0) sums[j][warp] = x[j];
  }
  __syncthreads();
  for (int j = 0; j < M; ++j) {
    x[j] = 0;
    for (int w = 0; w < kTraverseWarps; ++w) x[j] += sums[j][w];
  }
  __syncthreads();  // they may be used again
}

__device__ __forceinline__ uint32_t lower_to(uint32_t* at, uint32_t value) { return atomicMin(at, value); }
__device__ __forceinline__ uint64_t lower_to(uint64_t* at, uint64_t value) {
  return atomicMin(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}
__device__ __forceinline__ void add_to(uint64_t* at, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}

// Sets of vertices as bits.
__device__ __forceinline__ bool has(const uint32_t* set, int64_t v) { return set[v / 32] >> v % 32 & 1; }
__device__ __forceinline__ void insert(uint32_t* set, int64_t v) { atomicOr(set + v / 32, 1u << v % 32); }

}  // namespace loader
