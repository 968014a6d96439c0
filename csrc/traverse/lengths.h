// The numbers that a shortest path is measured in. For CPU and GPU.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace loader {

// Lengths of paths as unsigned integers in the order of the numbers that they stand for, so that the smallest
// is found by an atomic minimum. W is the type of the weights, which are at least 0.
//
//   Bits         a length
//   kUnreached   of no path; more than any length
//   kTooLong     of a path whose length W cannot hold; kUnreached if W has infinity
//   plus(d, w)   the length of a path that is one edge longer
template <typename W>
struct Length;

template <typename Float, typename Word>
struct FloatLength {
  using Bits = Word;
  union Either {
    Float number;
    Word bits;
  };
  LOADER_HD static Float number(Word bits) {
    Either either;
    either.bits = bits;
    return either.number;
  }
  LOADER_HD static Word bits(Float number) {
    Either either;
    either.number = number;
    return either.bits;
  }
  LOADER_HD static Word plus(Word d, Float w) { return bits(number(d) + w); }
};

template <>
struct Length<float> : FloatLength<float, uint32_t> {
  static constexpr uint32_t kUnreached = 0x7F800000u, kTooLong = kUnreached;
};
template <>
struct Length<double> : FloatLength<double, uint64_t> {
  static constexpr uint64_t kUnreached = 0x7FF0000000000000u, kTooLong = kUnreached;
};

template <typename Integer, typename Word>
struct IntegerLength {
  using Bits = Word;
  static constexpr Word kUnreached = static_cast<Word>(~Word{0}) >> 1, kTooLong = kUnreached - 1;
  LOADER_HD static Word plus(Word d, Integer w) {
    const Word sum = d + static_cast<Word>(w);
    return sum < kTooLong ? sum : kTooLong;
  }
};

template <>
struct Length<int32_t> : IntegerLength<int32_t, uint32_t> {};
template <>
struct Length<int64_t> : IntegerLength<int64_t, uint64_t> {};

}  // namespace loader
