// ReLU and dropout of elements as they are read.
#pragma once

#include "aggregate/cuda/vectors.cuh"

namespace loader {

constexpr int kPhilox2Rounds = 10;

// Philox 2x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): 64 bits, 16 for
// each of four neighbouring columns.
__device__ __forceinline__ uint2 philox2(uint32_t c0, uint32_t c1, uint32_t key) {
#pragma unroll
  for (int round = 0; round < kPhilox2Rounds; ++round, key += 0x9E3779B9u) {
    const uint64_t product = uint64_t{0xD256D193u} * c0;
    c0 = static_cast<uint32_t>(product >> 32) ^ key ^ c1;
    c1 = static_cast<uint32_t>(product);
  }
  return make_uint2(c0, c1);
}

// Which of four columns from 4 * quad on stay, a bit each.
__device__ __forceinline__ uint32_t kept(const Activation& f, int64_t row, int64_t quad) {
  const uint2 words = philox2(static_cast<uint32_t>(row), static_cast<uint32_t>(quad), f.key);
  return ((words.x & 0xFFFFu) >= f.threshold) | ((words.x >> 16) >= f.threshold) << 1 |
         ((words.y & 0xFFFFu) >= f.threshold) << 2 | ((words.y >> 16) >= f.threshold) << 3;
}

// The bits of the N columns from `column` on, which is a multiple of N.
template <int N>
__device__ __forceinline__ uint32_t kept_columns(const Activation& f, int64_t row, int64_t column) {
  if (f.threshold == 0) return 0xFFFFFFFFu;
  if constexpr (N == 8) return kept(f, row, column / 4) | kept(f, row, column / 4 + 1) << 4;
  return kept(f, row, column / 4) >> (column % 4);
}

// Not `x > 0`: what is no number stays so, as in torch.
template <typename S>
__device__ __forceinline__ bool passes(const Activation& f, S x) {
  return !(f.relu && x <= S(0));
}

template <typename T, int N>
__device__ __forceinline__ void activate(const Activation& f, bool identity, int64_t row, int64_t column,
                                         const Vector<T, N>& in, Sum<T> (&out)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = widen(in.v[i]);
  if (identity) return;
  const uint32_t stays = kept_columns<N>(f, row, column);
#pragma unroll
  for (int i = 0; i < N; ++i)
    out[i] = (stays >> i & 1) && passes(f, out[i]) ? out[i] * static_cast<Sum<T>>(f.scale) : Sum<T>(0);
}

}  // namespace loader
