#include "sampler/cpu/scan.h"

#include "sampler/cpu/wide_clones.h"

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

}  // namespace

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
