#include "sampler/cpu/scan.h"

#include <limits>

#include "sampler/cpu/wide.h"

namespace loader {
namespace {

constexpr int kLanes = 16;

// The first pair of words of one block in each lane.
inline void first_pairs(const uint64_t (&source)[kLanes], uint32_t step, uint64_t key,
                        uint64_t (&out)[kLanes]) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    c0[i] = static_cast<uint32_t>(source[i]);
    c1[i] = static_cast<uint32_t>(source[i] >> 32);
    c2[i] = step;
    c3[i] = 0;
  }
  PhiloxKey k(key);
  for (int round = 0; round < kPhiloxRounds; ++round, k.bump())
    for (int i = 0; i < kLanes; ++i) philox_round(c0[i], c1[i], c2[i], c3[i], k);
  for (int i = 0; i < kLanes; ++i) out[i] = c0[i] | uint64_t{c1[i]} << 32;
}

template <typename N>
inline void numbers_of(const SourceNumbers& numbers, const N* sources, int64_t count, uint64_t* out) {
  for (int64_t base = 0; base < count; base += kLanes) {
    const int n = count - base < kLanes ? static_cast<int>(count - base) : kLanes;
    uint64_t source[kLanes] = {}, pair[kLanes];
    for (int i = 0; i < n; ++i) source[i] = static_cast<uint64_t>(sources[base + i]);
    first_pairs(source, numbers.step, numbers.key, pair);
    if (numbers.period > 1) {
      uint64_t turns[kLanes], next[kLanes];
      first_pairs(source, 0, numbers.turns_key, turns);
      first_pairs(source, numbers.step, numbers.next_key, next);
      for (int i = 0; i < kLanes; ++i)
        if (numbers.turned(static_cast<uint32_t>(turns[i]))) pair[i] = next[i];
    }
    for (int i = 0; i < n; ++i) out[base + i] = pair[i];
  }
}

// An arrival is later than 1.44 / 2^7 * y / weight. What that puts off beyond `limit` is not worked out.
template <typename W>
inline bool arrivals_of(const Draws& draws, uint32_t first, int64_t count, const W* weights, double limit,
                        double* out) {
  constexpr double kLeast = 1.44 / 128 * 8589934592.0;  // of y / 2^33
  bool good = true;
  for (int64_t base = 0; base < count; base += 2 * kLanes) {
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      c0[i] = static_cast<uint32_t>(draws.lane);
      c1[i] = static_cast<uint32_t>(draws.lane >> 32);
      c2[i] = draws.step;
      c3[i] = first / 2 + static_cast<uint32_t>(base / 2) + static_cast<uint32_t>(i);
    }
    PhiloxKey k(draws.key);
    for (int round = 0; round < kPhiloxRounds; ++round, k.bump())
      for (int i = 0; i < kLanes; ++i) philox_round(c0[i], c1[i], c2[i], c3[i], k);
    const int n = count - base < 2 * kLanes ? static_cast<int>(count - base) : 2 * kLanes;
    double weight[2 * kLanes] = {};
    for (int i = 0; i < n; ++i) weight[i] = static_cast<double>(weights[base + i]);
    int32_t early[2 * kLanes], bad = 0;
    for (int i = 0; i < 2 * kLanes; ++i) {
      const uint32_t high = i % 2 ? c3[i / 2] : c1[i / 2];
      early[i] = kLeast * static_cast<int32_t>(high >> 1) < limit * weight[i];
      bad |= !(weight[i] >= 0 && weight[i] <= kLast);
    }
    good &= !bad;
    for (int i = 0; i < n; ++i) out[base + i] = std::numeric_limits<double>::infinity();
    for (int i = 0; i < n; ++i)
      if (early[i]) {
        const uint64_t y =
            i % 2 ? c2[i / 2] | uint64_t{c3[i / 2]} << 32 : c0[i / 2] | uint64_t{c1[i / 2]} << 32;
        if (weight[i] > 0) out[base + i] = arrival(y, weight[i]);
      }
  }
  return good;
}

}  // namespace

LOADER_WIDE bool arrivals(const Draws& draws, uint32_t first, int64_t count, const float* weights,
                          double limit, double* out) {
  return arrivals_of(draws, first, count, weights, limit, out);
}

LOADER_WIDE bool arrivals(const Draws& draws, uint32_t first, int64_t count, const double* weights,
                          double limit, double* out) {
  return arrivals_of(draws, first, count, weights, limit, out);
}

LOADER_WIDE void source_numbers(const SourceNumbers& numbers, const int32_t* sources, int64_t count,
                                uint64_t* out) {
  numbers_of(numbers, sources, count, out);
}

LOADER_WIDE void source_numbers(const SourceNumbers& numbers, const int64_t* sources, int64_t count,
                                uint64_t* out) {
  numbers_of(numbers, sources, count, out);
}

LOADER_WIDE void high_words(const SourceNumbers& numbers, int64_t begin, int64_t end, uint32_t* high) {
  int64_t sources[kScanned];
  uint64_t drawn[kScanned];
  for (int64_t first = begin; first < end; first += kScanned) {
    const int64_t n = end - first < kScanned ? end - first : kScanned;
    for (int64_t i = 0; i < n; ++i) sources[i] = first + i;
    numbers_of(numbers, sources, n, drawn);
    for (int64_t i = 0; i < n; ++i) high[first + i] = static_cast<uint32_t>(drawn[i] >> 32);
  }
}

}  // namespace loader
