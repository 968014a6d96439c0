// Lists that have to be looked at entry by entry.
#pragma once

#include <cstdint>

#include "arena.h"
#include "sampler/labor.h"

namespace loader {

constexpr int64_t kScanned = 256;  // entries that are looked at together

// The numbers of `count` sources, compiled for the widest vector unit of this machine.
void source_numbers(const SourceNumbers& numbers, const int32_t* sources, int64_t count, uint64_t* out);
void source_numbers(const SourceNumbers& numbers, const int64_t* sources, int64_t count, uint64_t* out);

// Appends to `picked` which of the `count` entries at `sources` a list of `degree` picks, and to `positions`
// their places, that of the first entry being `begin`; to null it appends nothing. Returns how many they are.
template <typename P, typename N>
int64_t scan_labor(const SourceNumbers& numbers, const N* sources, int64_t count, uint32_t degree,
                   uint32_t fanout, P begin, Arena<N>& picked, Arena<P>* positions) {
  uint64_t drawn[kScanned];
  uint32_t taken[kScanned];
  int64_t sum = 0;
  for (int64_t first = 0; first < count; first += kScanned) {
    const int64_t n = count - first < kScanned ? count - first : kScanned;
    source_numbers(numbers, sources + first, n, drawn);
    uint32_t found = 0;
    for (int64_t i = 0; i < n; ++i) {
      taken[found] = static_cast<uint32_t>(i);
      found += labor_picks(drawn[i], degree, fanout);
    }
    N* const out = picked.extend(found);
    for (uint32_t i = 0; i < found; ++i) out[i] = sources[first + taken[i]];
    if (positions) {
      P* const at = positions->extend(found);
      for (uint32_t i = 0; i < found; ++i) at[i] = begin + static_cast<P>(first + taken[i]);
    }
    sum += found;
  }
  return sum;
}

}  // namespace loader
