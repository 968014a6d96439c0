// Picks that only a look at the list tells (ScanChoice), of what a row sees of its list, or of a part of
// that, by a warp. It looks twice: `count` tells how many are picked, so that there is room for them, and
// `pick` or a race which.
#pragma once

#include "sampler/choice.h"
#include "sampler/cuda/race.cuh"

namespace loader {

// Entries [first, first + count) of what a row sees; of a race `first` is even.
struct RangePart {
  uint32_t first, count;
};

// Calls f(number, i) with each entry i of a part that is picked, in order, by the lane that has it:
// `picks(i, read(i))` says whether it is. Ends once `most` are, or a few more. Returns how many.
template <typename Read, typename Picks, typename F>
__device__ __forceinline__ uint32_t for_each_picked(const RangePart& part, uint32_t most, const Read& read,
                                                    const Picks& picks, const F& f) {
  constexpr uint32_t kEach = 4;  // loads of a lane that are on their way together
  const uint32_t lane = threadIdx.x % 32, before_lane = (1u << lane) - 1, end = part.first + part.count;
  uint32_t found = 0;
#pragma unroll 1
  for (uint32_t base = part.first; base < end && found < most; base += 32 * kEach) {
    decltype(read(0u)) got[kEach];
#pragma unroll
    for (uint32_t e = 0; e < kEach; ++e) {
      const uint32_t i = base + 32 * e + lane;
      got[e] = i < end ? read(i) : decltype(read(0u)){};
    }
#pragma unroll
    for (uint32_t e = 0; e < kEach; ++e) {
      const uint32_t i = base + 32 * e + lane;
      const bool picked = i < end && picks(i, got[e]);
      const uint32_t votes = __ballot_sync(kFullMask, picked);
      if (picked) f(found + __popc(votes & before_lane), i);
      found += __popc(votes);
    }
  }
  return found;
}

// What a row sees of its list, and how it is picked from.
template <typename Lists>
struct RangeScan {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;

  const ScanChoice& choice;
  const Lists& lists;
  const BatchKeys keys;
  const int hop;
  const Draws draws;  // the row's
  const P begin;
  const uint32_t degree;
  const int fanout;  // not 0

  __device__ RangePart all() const { return {0, degree}; }

  // The most that are picked.
  __device__ uint32_t most() const {
    return choice.races && fanout != kAllNeighbors ? static_cast<uint32_t>(fanout) : ~0u;
  }

  // Whether those that `count` told are the first of a race, not all entries that can be picked.
  __device__ bool is_race(uint32_t held) const { return held == most(); }

  // How many of a part are picked; of a race, if no others were: at least `most()` if there are more. All
  // lanes get the answer. `bad(place)`: of a weight that is not allowed, if it is looked at.
  template <typename Bad>
  __device__ uint32_t count(const RangePart& part, const Bad& bad) const {
    return pick(part, most(), [](uint32_t, uint32_t) {}, bad);
  }

  // Calls put(number, i) with each of a part that is picked without a race, entry i.
  template <typename Put, typename Bad>
  __device__ uint32_t pick(const RangePart& part, uint32_t most, const Put& put, const Bad& bad) const {
    if (!choice.races) return low(part, put);
    return with_weights([&](const auto* weights) { return positive(weights, part, most, put, bad); });
  }

  // The first of a part to arrive: in `raced`, in list order. Returns how many.
  template <typename Bad>
  __device__ uint32_t race(const RangePart& part, const RaceBuffer& raced, const Bad& bad) const {
    return with_weights([&](const auto* weights) {
      const auto wanted = static_cast<uint32_t>(fanout);
      const RaceResult found = race_of(weights, raced, wanted, begin, part.first, part.count, draws);
      if (found.bad >= 0) bad(static_cast<P>(found.bad));
      __syncwarp();
      return found.held;
    });
  }

 private:
  // LABOR's.
  template <typename F>
  __device__ uint32_t low(const RangePart& part, const F& f) const {
    const SourceNumbers numbers = choice.labor.numbers(keys, hop);
    return for_each_picked(
        part, ~0u, [&](uint32_t i) { return lists.read(begin, i); },
        [&](uint32_t, N source) {
          return labor_picks(numbers(static_cast<uint64_t>(source)), degree, static_cast<uint32_t>(fanout));
        },
        f);
  }

  // Those with a weight above 0.
  template <typename W, typename F, typename Bad>
  __device__ uint32_t positive(const W* weights, const RangePart& part, uint32_t most, const F& f,
                               const Bad& bad) const {
    return for_each_picked(
        part, most, [&](uint32_t i) { return load(weights + begin + i); },
        [&](uint32_t i, W weight) {
          const float bounded = WarpRace::bounded(weight);
          if (bounded < 0) bad(begin + static_cast<P>(i));
          return bounded > 0;
        },
        f);
  }

  template <typename F>
  __device__ uint32_t with_weights(const F& f) const {
    return choice.race.floats ? f(choice.race.floats) : f(choice.race.doubles);
  }
};

}  // namespace loader
