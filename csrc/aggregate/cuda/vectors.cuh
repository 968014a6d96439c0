// Elements of every type as vectors of up to 16 bytes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "aggregate/cuda/mean.h"
#include "machine_words.cuh"

namespace loader {

template <typename T>
using Sum = Wide<T>;

// The block that a kernel works on, with all that is captured looked up.
template <typename P, typename I>
__device__ __forceinline__ DeviceBlock<P, I> settled(const DeviceBlock<P, I>& block) {
  if (block.captured == nullptr) return block;
  const CapturedBlock& now = *block.captured;
  return {static_cast<const P*>(now.indptr),
          static_cast<const I*>(now.indices),
          now.num_dst,
          block.num_src,
          now.num_edges,
          block.captured,
          block.sums,
          block.order,
          block.at};
}

template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T v[N];
};

// As one word: the 16-bit types are classes, which the compiler would copy one by one.
template <typename T, int N>
__device__ __forceinline__ Vector<T, N> load(const T* p) {
  Vector<T, N> out;
  if constexpr (sizeof(T) * N > 16) {  // float32 beside a word of narrower elements
    const Vector<T, N / 2> halves[2] = {load<T, N / 2>(p), load<T, N / 2>(p + N / 2)};
    memcpy(&out, halves, sizeof(halves));
  } else {
    const auto word = *reinterpret_cast<const Word<sizeof(T) * N>*>(p);
    memcpy(&out, &word, sizeof(word));
  }
  return out;
}

template <typename T, int N>
__device__ __forceinline__ void store(T* p, const Vector<T, N>& vector) {
  if constexpr (sizeof(T) * N > 16) {  // see `load`
    constexpr int kHalf = N / 2;
    Vector<T, kHalf> halves[2];
    memcpy(halves, &vector, sizeof(halves));
    store<T, kHalf>(p, halves[0]);
    store<T, kHalf>(p + kHalf, halves[1]);
  } else {
    Word<sizeof(T) * N> word;
    memcpy(&word, &vector, sizeof(word));
    *reinterpret_cast<decltype(word)*>(p) = word;
  }
}

template <typename T, int N, typename S>
__device__ __forceinline__ void store_scaled(T* p, const S (&sum)[N], S scale) {
  Vector<T, N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out.v[i] = narrow<T>(sum[i] * scale);
  store(p, out);
}

// Of a value of each lane, to all lanes.
__device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

}  // namespace loader
