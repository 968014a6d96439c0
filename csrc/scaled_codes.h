// Elements of 8 bits with a scale: what a row is that is kept as codes.
//
// An element is value(code) * scale, one multiplication of float32 that is rounded by itself, on the CPU and
// on the GPU: so both decode to equal bits, and a sum of decoded rows is that of gathered ones.
#pragma once

#include <cstdint>
#include <type_traits>

#ifndef __CUDACC_RTC__
#include <cstring>
#endif

#include "gpu/narrow_floats.h"
#include "host_device.h"

namespace loader {

enum class Code : int { kInt8 = 0, kFloat8 = 1 };

template <typename T>
constexpr bool kIsCode = std::is_same_v<T, int8> || std::is_same_v<T, float8>;

// Scales of codes: one for each column, or with `by_row` one for each row of the table.
struct Scales {
  const float* of;
  bool by_row;
};

// Rows of codes in a table: the first `columns` bytes of each are codes, and what follows fills it up.
struct CodedRows {
  Code code;
  int64_t columns;
  Scales scales;
};

LOADER_HD float value_of(int8 code) { return static_cast<float>(static_cast<int8_t>(code.bits)); }

// By arithmetic of bits, which every GPU has, unlike instructions for such numbers; with masks in place of
// conditions, so that a loop becomes SIMD.
LOADER_HD float value_of(float8 code) {
  const int32_t magnitude = code.bits & 0x7F;
  const float below = static_cast<float>(magnitude) * 0.001953125f;  // 2^-9, of those without an exponent
  int32_t bits;
  memcpy(&bits, &below, sizeof(bits));
  const int32_t is_small = -static_cast<int32_t>(magnitude < 8);
  const int32_t is_nan = -static_cast<int32_t>(magnitude == 0x7F);
  bits = (bits & is_small) | (((magnitude << 20) + (120 << 23)) & ~is_small) | (0x7FC00000 & is_nan) |
         static_cast<int32_t>((code.bits & 0x80u) << 24);
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

LOADER_HD float scaled(float value, float scale) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(value, scale);  // never part of a fused multiply-add
#else
  return value * scale;
#endif
}

}  // namespace loader
