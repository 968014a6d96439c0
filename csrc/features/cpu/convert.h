// Numbers of 16 bits and float32 into each other, as Tensor.to rounds them: to nearest even; what is too
// large becomes infinite; a NaN stays one. By arithmetic of bits without conditions, so that a loop becomes
// SIMD on every processor. A thread may have set that numbers below the least normal one are read as 0: none
// occur.
#pragma once

#include <cstdint>
#include <cstring>

#include "gpu/narrow_floats.h"

namespace loader {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t ones_if(bool holds) { return 0u - static_cast<uint32_t>(holds); }

inline float value_of(float value) { return value; }

inline float value_of(bfloat16 value) { return float_of(uint32_t{value.bits} << 16); }

inline float value_of(half value) {
  const uint32_t magnitude = value.bits & 0x7FFFu;
  // Below 2^-14 there is no exponent, and a unit is 2^-24.
  const uint32_t small =
      bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * 5.9604644775390625e-8f);
  const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
  const uint32_t beyond = (magnitude << 13) | 0x7F800000u;  // infinite, or a NaN
  const uint32_t is_small = ones_if(magnitude < 0x0400u), is_beyond = ones_if(magnitude >= 0x7C00u);
  const uint32_t bits = (small & is_small) | (beyond & is_beyond) | (normal & ~(is_small | is_beyond));
  return float_of(bits | (uint32_t{value.bits} & 0x8000u) << 16);
}

template <typename To>
To number_of(float value);

template <>
inline float number_of<float>(float value) {
  return value;
}

template <>
inline bfloat16 number_of<bfloat16>(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t is_nan = ones_if((bits & 0x7FFFFFFFu) > 0x7F800000u);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return {static_cast<uint16_t>((rounded & ~is_nan) | (0x7FC0u & is_nan))};
}

template <>
inline half number_of<half>(float value) {
  const uint32_t bits = bits_of(value), magnitude = bits & 0x7FFFFFFFu;
  // To units of 2^-24: the sum is rounded to them, since 0.5 has this many bits.
  const uint32_t small = bits_of(float_of(magnitude & ones_if(magnitude < 0x38800000u)) + 0.5f) - 0x3F000000u;
  const uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t is_small = ones_if(magnitude < 0x38800000u), is_large = ones_if(magnitude >= 0x477FF000u);
  const uint32_t beyond = 0x7C00u | (0x0200u & ones_if(magnitude > 0x7F800000u));
  const uint32_t found = (small & is_small) | (beyond & is_large) | (normal & ~(is_small | is_large));
  return {static_cast<uint16_t>(found | ((bits >> 16) & 0x8000u))};
}

}  // namespace loader
