// What one thread moves at a time: a machine word of a row, copied or converted on its way.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

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

// A unit of copied bytes.
template <int Bytes>
struct Copied {
  using In = typename WordOf<Bytes>::Type;
  using Out = In;
  static __device__ __forceinline__ Out apply(In word) { return word; }
};

__device__ __forceinline__ float as_float(float x) { return x; }
__device__ __forceinline__ float as_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to nearest, ties to even, as torch's `.to()` does.
template <typename T>
__device__ __forceinline__ T rounded(float x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else
    return x;
}

// A unit of `Count` elements, converted. float32 holds every value of the two narrow types.
template <typename From, typename To, int Count>
struct Converted {
  using In = typename WordOf<Count * sizeof(From)>::Type;
  using Out = typename WordOf<Count * sizeof(To)>::Type;
  static __device__ __forceinline__ Out apply(In word) {
    From from[Count];
    To to[Count];
    memcpy(from, &word, sizeof(word));
#pragma unroll
    for (int i = 0; i < Count; ++i) to[i] = rounded<To>(as_float(from[i]));
    Out out;
    memcpy(&out, to, sizeof(out));
    return out;
  }
};

}  // namespace loader
