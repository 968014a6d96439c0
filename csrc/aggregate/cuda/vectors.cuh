// Elements of every type as vectors of up to 16 bytes, and how wide they may be for a layout.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "aggregate/cuda/mean.h"

namespace loader {

template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The block that a kernel works on, with all that is live looked up.
template <typename P, typename I>
__device__ __forceinline__ DeviceBlock<P, I> settled(const DeviceBlock<P, I>& block) {
  if (block.live == nullptr) return block;
  const LiveBlock& now = *block.live;
  return {static_cast<const P*>(now.indptr),
          static_cast<const I*>(now.indices),
          now.num_dst,
          block.num_src,
          now.num_edges,
          block.live};
}

template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T v[N];
};

template <int kBytes>
struct Word;
template <>
struct Word<2> {
  using type = uint16_t;
};
template <>
struct Word<4> {
  using type = uint32_t;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};

// As one word: the 16-bit types are classes, which the compiler would copy one by one.
template <typename T, int N>
__device__ __forceinline__ Vector<T, N> load(const T* p) {
  const auto word = *reinterpret_cast<const typename Word<sizeof(T) * N>::type*>(p);
  Vector<T, N> out;
  memcpy(&out, &word, sizeof(word));
  return out;
}

template <typename T, int N>
__device__ __forceinline__ void store(T* p, const Vector<T, N>& vector) {
  typename Word<sizeof(T) * N>::type word;
  memcpy(&word, &vector, sizeof(word));
  *reinterpret_cast<decltype(word)*>(p) = word;
}

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T narrow(Sum<T> x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return x;
  }
}

template <typename T, int N, typename S>
__device__ __forceinline__ void store_scaled(T* p, const S (&sum)[N], S scale) {
  Vector<T, N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out.v[i] = narrow<T>(sum[i] * scale);
  store(p, out);
}

// Elements of the widest vector that suits a number of columns and every array it was shown: all of them are
// multiples of it, counted in elements of their own type.
class Alignment {
 public:
  explicit Alignment(int64_t dim) : bits_(static_cast<uint64_t>(dim)) {}

  template <typename T>
  Alignment& of(const Rows<T>& rows) {
    if (rows.data != nullptr)
      bits_ |= reinterpret_cast<uint64_t>(rows.data) / sizeof(T) | static_cast<uint64_t>(rows.stride);
    return *this;
  }

  bool allows(uint64_t elements) const { return bits_ % elements == 0; }

 private:
  uint64_t bits_;
};

// Calls `f` with the width of the vectors, as a constant.
template <typename T, typename F>
cudaError_t with_vectors(const Alignment& alignment, const F& f) {
  constexpr int kWidest = 16 / sizeof(T);
  if (alignment.allows(kWidest)) return f(std::integral_constant<int, kWidest>{});
  if constexpr (kWidest > 2) {
    if (alignment.allows(kWidest / 2)) return f(std::integral_constant<int, kWidest / 2>{});
  }
  return f(std::integral_constant<int, 1>{});
}

}  // namespace loader
