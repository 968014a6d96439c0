// Lists that have to be looked at entry by entry.
#pragma once

#include <algorithm>
#include <cstdint>

#include "arena.h"
#include "sampler/sampler.h"

namespace loader {

constexpr int64_t kScanned = 256;  // entries that are looked at together

// The numbers of `count` sources, compiled for the widest vector unit of this machine.
void source_numbers(const SourceNumbers& numbers, const int32_t* sources, int64_t count, uint64_t* out);
void source_numbers(const SourceNumbers& numbers, const int64_t* sources, int64_t count, uint64_t* out);

// The high words of the numbers of the sources [begin, end), to high[begin..end).
void high_words(const SourceNumbers& numbers, int64_t begin, int64_t end, uint32_t* high);

// Scans lists for what LABOR picks.
template <typename N>
class LaborScan {
 public:
  // `high`: the high words of all sources, or null if making them takes longer than they save.
  LaborScan(const SourceNumbers& numbers, const uint32_t* high) : numbers_(numbers), high_(high) {}

  // Looks at `count` entries from place `begin` on, and appends to `picked` those that a list of `degree`
  // picks. Appends their places to `positions`, unless that is null. Returns the number of picked entries.
  template <typename Lists, typename P = typename Lists::Edge>
  int64_t operator()(const Lists& lists, P begin, int64_t count, uint32_t degree, uint32_t fanout,
                     Arena<N>& picked, Arena<P>* positions) const {
    uint32_t taken[kScanned];
    N room[kScanned];
    int64_t sum = 0;
    for (int64_t first = 0; first < count; first += kScanned) {
      const int64_t n = count - first < kScanned ? count - first : kScanned;
      const N* const sources = neighbors(lists, static_cast<P>(begin + first), n, room);
      const uint32_t found = high_ ? by_high_words(sources, n, degree, fanout, taken)
                                   : by_numbers(sources, n, degree, fanout, taken);
      N* const out = picked.extend(found);
      for (uint32_t i = 0; i < found; ++i) out[i] = sources[taken[i]];
      if (positions) {
        P* const at = positions->extend(found);
        for (uint32_t i = 0; i < found; ++i) at[i] = begin + static_cast<P>(first + taken[i]);
      }
      sum += found;
    }
    return sum;
  }

 private:
  uint32_t by_numbers(const N* sources, int64_t n, uint32_t degree, uint32_t fanout, uint32_t* taken) const {
    uint64_t drawn[kScanned];
    source_numbers(numbers_, sources, n, drawn);
    uint32_t found = 0;
    for (int64_t i = 0; i < n; ++i) {
      taken[found] = static_cast<uint32_t>(i);
      found += labor_picks(drawn[i], degree, fanout);
    }
    return found;
  }

  // A high word below the limit is picked and one above it is not. At the limit the whole number decides.
  uint32_t by_high_words(const N* sources, int64_t n, uint32_t degree, uint32_t fanout,
                         uint32_t* taken) const {
    const auto limit = static_cast<uint32_t>((uint64_t{fanout} << 32) / degree);
    uint32_t found = 0, at_limit = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t high = high_[sources[i]];
      taken[found] = static_cast<uint32_t>(i);
      found += high <= limit;
      at_limit += high == limit;
    }
    if (at_limit == 0) return found;
    uint32_t picked = 0;
    for (uint32_t i = 0; i < found; ++i)
      if (labor_picks(numbers_(static_cast<uint64_t>(sources[taken[i]])), degree, fanout))
        taken[picked++] = taken[i];
    return picked;
  }

  const SourceNumbers numbers_;
  const uint32_t* const high_;
};

}  // namespace loader
