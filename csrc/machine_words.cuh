// Machine words of a number of bytes, and elements of every type as ones to compute with.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/narrow_floats.h"

namespace loader {

template <int Bytes>
struct WordOf;
template <>
struct WordOf<16> {
  using Type = uint4;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};
template <>
struct WordOf<2> {
  using Type = uint16_t;
};
template <>
struct WordOf<1> {
  using Type = uint8_t;
};

template <int Bytes>
using Word = typename WordOf<Bytes>::Type;

// What elements of type T are computed with: it holds every value of theirs.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(half x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
__device__ __forceinline__ float widen(bfloat16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }

// Rounds to nearest, ties to even, as torch's `.to()` does.
template <typename T>
__device__ __forceinline__ T narrow(Wide<T> x) {
  if constexpr (std::is_same_v<T, half>) {
    half narrowed;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrowed.bits) : "f"(x));
    return narrowed;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    bfloat16 narrowed;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrowed.bits) : "f"(x));
#else
    const uint32_t bits = __float_as_uint(x);
    const bool is_number = (bits & 0x7FFFFFFFu) <= 0x7F800000u;
    narrowed.bits =
        is_number ? static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16) : uint16_t{0x7FFF};
#endif
    return narrowed;
  } else {
    return x;
  }
}

}  // namespace loader
