// Picks by weight from the weights themselves, without a table: for weights that change. Written once for
// host and device.
//
// A race: entry i of a list arrives at the time X_i / w_i, where the X_i are independent exponential
// variates, and the first `fanout` to arrive are picked. That is successive sampling, as from a table
// (weighted.h), by other draws (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", IPL
// 2006: their keys are exp(-X/w)). An entry of weight 0 never arrives. Two that arrive together come in list
// order.
//
// X_i is an integer: 2^57 times -log2(1 - y / 2^64), y being draw i of 64 bits, by a polynomial in integer
// arithmetic. It deviates by less than 2^-26 of itself from the logarithm, and so do the probabilities of a
// race by no more than twice that. The time is one division of doubles, which IEEE 754 specifies.
#pragma once

#include "sampler/pick.h"

namespace loader {

// f -> 2^28 * -log2(1 - f) / f for f = fraction / 2^32 <= 1/2: the polynomial that agrees at ten Chebyshev
// nodes.
LOADER_HD int64_t log2_quotient(uint32_t fraction) {
  int32_t sum = 671376768;  // never more than 2^30.5 on either side, for it is halved at least
  const auto next = [&](int32_t coefficient) {
    sum = coefficient + static_cast<int32_t>((int64_t{sum} * static_cast<int64_t>(fraction)) >> 32);
  };
  next(-952283399);
  next(759000059);
  next(-228523948);
  next(131961057);
  next(67943036);
  next(97575434);
  next(129059894);
  next(193635715);
  next(387270500);
  return sum;
}

LOADER_HD uint32_t leading_zeros(uint64_t x) {  // x > 0
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__clzll(static_cast<long long>(x)));
#else
  return static_cast<uint32_t>(__builtin_clzll(x));
#endif
}

// 2^57 * -log2(1 - y / 2^64), at most 2^63.
LOADER_HD uint64_t exponential(uint64_t y) {
  // 1 - y / 2^64 = (1 - fraction / 2^64) / 2^halvings
  const uint32_t halvings = y >> 63 ? leading_zeros(0 - y) : 0;
  const uint64_t fraction = y >> 63 ? 0 - ((0 - y) << halvings) : y;
  const auto quotient = static_cast<uint64_t>(log2_quotient(static_cast<uint32_t>(fraction >> 32)));
  return (uint64_t{halvings} << 57) + (multiply_high(fraction, quotient << 34) >> 5);
}

constexpr double kLast = 1.7976931348623157e308;  // arrival of what has a weight

// When an entry arrives that has a weight above 0.
LOADER_HD double arrival(uint64_t y, double weight) {
  const double time = static_cast<double>(exponential(y)) / weight;
  return time < kLast ? time : kLast;
}

}  // namespace loader
