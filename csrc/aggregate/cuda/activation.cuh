// ReLU and dropout of elements as they are read.
#pragma once

#include "aggregate/cuda/vectors.cuh"

namespace loader {

// The paper below takes ten for a margin; of its kinds of Philox six or seven pass all tests of BigCrush.
// Given two million rows, tests/loader/ops/test_dropout.py finds neighbors alike after four rounds, and
// nothing after five.
constexpr int kPhilox2Rounds = 7;

// Philox 2x32-7 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): 64 bits, 16 for
// each of four neighboring columns.
__device__ __forceinline__ uint2 philox2(uint32_t c0, uint32_t c1, uint32_t key) {
#pragma unroll
  for (int round = 0; round < kPhilox2Rounds; ++round, key += 0x9E3779B9u) {
    const uint64_t product = uint64_t{0xD256D193u} * c0;
    c0 = static_cast<uint32_t>(product >> 32) ^ key ^ c1;
    c1 = static_cast<uint32_t>(product);
  }
  return make_uint2(c0, c1);
}

// Which of two columns stay, a bit each, by the halves of `word`.
__device__ __forceinline__ uint32_t keep_bits(const Activation& f, uint32_t word) {
  return ((word & 0xFFFFu) >= f.threshold) | ((word >> 16) >= f.threshold) << 1;
}

// The bits of the N columns from `column` on, which is a multiple of N.
template <int N>
__device__ __forceinline__ uint32_t keep_mask(const Activation& f, int64_t row, int64_t column) {
  if (f.threshold == 0) return 0xFFFFFFFFu;
  const auto quad = static_cast<uint32_t>(column / 4);
  const auto words_of = [&](uint32_t of_quad) { return philox2(static_cast<uint32_t>(row), of_quad, f.key); };
  const uint2 words = words_of(quad);
  if constexpr (N < 4) return keep_bits(f, column % 4 < 2 ? words.x : words.y) >> column % 2;
  const uint32_t first = keep_bits(f, words.x) | keep_bits(f, words.y) << 2;
  if constexpr (N <= 4) return first;
  const uint2 more = words_of(quad + 1);
  return first | keep_bits(f, more.x) << 4 | keep_bits(f, more.y) << 6;
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
  const uint32_t stays = keep_mask<N>(f, row, column);
#pragma unroll
  for (int i = 0; i < N; ++i)
    out[i] = (stays >> i & 1) && passes(f, out[i]) ? out[i] * static_cast<Sum<T>>(f.scale) : Sum<T>(0);
}

}  // namespace loader
