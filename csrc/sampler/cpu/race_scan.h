// The race of a list (race.h) on the CPU.
//
// A first look at the weights gives their sum, and with it a guess at the time when the race is over: by then
// somewhat more than `fanout` entries have arrived. A bound from an entry's random number and weight shows of
// nearly all that they come later. Only for the others the arrival is worked out. If fewer than `fanout` came
// before the guess, the list is run again without one; that happens if few entries have most of the weight.
// So what is picked does not depend on the guess.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "arena.h"
#include "sampler/sampler.h"

namespace loader {

// Asks memory for the weights of a list, a kilobyte at most: then who reads them asks for the rest.
inline void prefetch_weights(const RaceChoice& choice, int64_t begin, int64_t degree) {
  constexpr int64_t kLine = 64, kMost = 16 * kLine;  // bytes
  const auto ask = [&](const auto* weights) {
    const auto* const at = reinterpret_cast<const char*>(weights + begin);
    const auto bytes = std::min(degree * static_cast<int64_t>(sizeof *weights), kMost);
    for (int64_t byte = 0; byte < bytes; byte += kLine) __builtin_prefetch(at + byte);
  };
  if (choice.floats)
    ask(choice.floats);
  else
    ask(choice.doubles);
}

class RaceScan {
 public:
  // Appends to `places` those of the `degree` entries from `begin` on that are picked, ascending, and returns
  // how many they are. Throws std::invalid_argument for a weight that is negative, infinite or NaN.
  template <typename P>
  int64_t operator()(const RaceChoice& choice, const Draws& draws, P begin, uint32_t degree, int64_t fanout,
                     Arena<P>& places) {
    const auto at = static_cast<int64_t>(begin);
    const int64_t count = choice.floats ? race(choice.floats + at, at, draws, degree, fanout)
                                        : race(choice.doubles + at, at, draws, degree, fanout);
    P* const out = places.extend(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) out[i] = begin + static_cast<P>(picked_[static_cast<size_t>(i)]);
    return count;
  }

 private:
  static constexpr uint32_t kTogether = 256;  // entries that draw together

  // Finds what is picked; returns how many.
  template <typename W>
  int64_t race(const W* weights, int64_t begin, const Draws& draws, uint32_t degree, int64_t fanout);
  // Finds the first `most` of those who arrive before `limit`.
  template <typename W>
  void run(const W* weights, const Draws& draws, uint32_t degree, size_t most, double limit);

  std::vector<std::pair<double, uint32_t>> arrived_;
  std::vector<uint32_t> picked_;
  uint64_t lane_[kTogether / 2];
  uint32_t step_[kTogether / 2], index_[kTogether / 2], words_[2 * kTogether], early_[kTogether];
};

}  // namespace loader
