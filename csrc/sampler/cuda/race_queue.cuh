// Races by weight (race.h) on several lists by one warp. What may arrive first is found list by list, but
// what takes a lane per entry, when it arrives and before how many others, is done for all lists together: a
// list has some 10 such entries, and a warp 32 lanes.
//
// Of a list, each 256 entries tell a better guess at the time when enough of it have arrived. So the entries
// that wait are all that arrive before the last guess, and some more. If fewer than `fanout` of them do, the
// guess was wrong, and the list is raced by itself (race.cuh). The same happens if it cannot wait here.
#pragma once

#include "sampler/cuda/race.cuh"

namespace loader {

constexpr uint32_t kQueuedEntries = 64;  // of one list that may wait
constexpr uint32_t kQueuedFanout = 32;   // of wider ones more wait, and they are few beside the picks
constexpr uint32_t kQueuedDegree = 1u << 24;
constexpr uint32_t kPlaceBits = 29;  // of an entry that waits; the others are the number of its list
static_assert(kQueuedDegree <= 1u << kPlaceBits, "any place has room");

enum class Queued { kWaits, kFull, kApart };

struct RaceQueue {
  const RaceBuffer buffer;
  const uint32_t fanout, lane;
  uint32_t waiting = 0, longest = 0;  // entries of all lists, and of the list that has most
  uint32_t end = 0;                   // lane i: of the entries of list i
  float last = -1;                    // lane i: entries that arrive before this all wait; -1: list i does not

  __device__ RaceQueue(const RaceBuffer& buffer, uint32_t fanout)
      : buffer(buffer), fanout(fanout), lane(threadIdx.x % 32) {}

  // Adds list number i, which begins at `list` and has more than `fanout` entries. Numbers ascend.
  template <typename W>
  __device__ __forceinline__ Queued add(uint32_t i, const W* list, uint32_t degree, const Draws& draws) {
    if (waiting + kQueuedEntries > fanout + kRaceEntries) return Queued::kFull;
    const WarpRace race(buffer, fanout);
    uint32_t to = waiting;
    float sum = 0, bound = never();
    bool good = true;
    for (uint32_t first = 0; first < degree; first += kRaceEntries) {
      const uint32_t left = degree - first, entries = min(left, kRaceEntries);
      const WarpRace::Weights weights = race.weights_of(list + first, left);
      good &= weights.good;
      sum += WarpRace::sum_of(weights);
      bound = min(bound, race.guess(sum, first + entries));
      to = race.sift(first, entries, weights.of, draws, bound, to, waiting + kQueuedEntries, i << kPlaceBits);
      if (to > waiting + kQueuedEntries) return Queued::kApart;
    }
    if (__any_sync(kFullMask, !good)) return Queued::kApart;
    longest = max(longest, to - waiting);
    waiting = to;
    if (lane >= i) end = to;
    if (lane == i) last = bound;
    return Queued::kWaits;
  }

  // Picks from all lists that wait. Lane i knows where list i begins, at `all + begin`; its picks go to `out
  // + i * width`, and their number to `picks[i]`. Returns the lists, as bits, that are to be raced by
  // themselves.
  template <typename W, typename P>
  __device__ __forceinline__ uint32_t pick(const W* all, P begin, uint32_t* out, uint32_t width,
                                           uint32_t* picks) {
    constexpr uint32_t kLate = (1u << kPlaceBits) - 1;  // more than the upper bits of any arrival
    __syncwarp();
    // In place of the random numbers: the list and the upper bits of the arrival. What lies behind the
    // entries of a list is later than all of them, so nobody asks where they end.
    auto* const keys = reinterpret_cast<uint32_t*>(buffer.times);
    for (uint32_t base = 0; base < waiting + longest; base += 32) {
      const bool waits = base + lane < waiting;
      uint32_t key = ~0u;
      if (base < waiting) {
        const uint32_t entry = waits ? buffer.places[base + lane] : 0;
        const uint64_t number = waits ? buffer.times[base + lane] : 0;
        const uint32_t i = entry >> kPlaceBits;
        const P list = __shfl_sync(kFullMask, begin, i);
        const float before = __shfl_sync(kFullMask, last, i);
        if (waits) {
          const W weight = load(all + list + static_cast<P>(entry & kLate));
          const uint64_t time = bits_of(arrival(number, static_cast<double>(weight)));
          const bool is_early = time < bits_of(static_cast<double>(before));
          key = i << kPlaceBits | (is_early ? static_cast<uint32_t>(time >> 34) : kLate);
        }
        __syncwarp();  // all have read theirs, and lower ones are not read any more
      }
      keys[base + lane] = key;
    }
    __syncwarp();
    const uint32_t before_lane = (1u << lane) - 1;
    const uint32_t below = __shfl_up_sync(kFullMask, end, 1), first = lane > 0 ? below : 0;
    uint32_t found = 0;  // of list number `lane`
    for (uint32_t base = 0; base < waiting; base += 32) {
      const uint32_t key = keys[base + lane];
      const uint32_t entry = base + lane < waiting ? buffer.places[base + lane] : 0;
      const uint32_t i = entry >> kPlaceBits, from = __shfl_sync(kFullMask, first, i);
      const uint32_t* const others = keys + from;
      uint32_t earlier = 0;
#pragma unroll 4
      for (uint32_t j = 0; j < longest; ++j) earlier += others[j] < key;
      const bool stays = earlier < fanout && (key & kLate) != kLate;
      const uint32_t votes = __ballot_sync(kFullMask, stays), taken = __shfl_sync(kFullMask, found, i);
      const uint32_t to = taken + __popc(votes & before_lane & ~bits_below(from, base));
      if (stays && to < fanout) out[i * width + to] = entry & kLate;
      found += __popc(votes & bits_below(end, base) & ~bits_below(first, base));
    }
    // More if some arrive together, as far as the keys tell.
    const bool all_of_few = !(last <= kMostFloat) && found == end - first;
    const bool good = found == fanout || (found < fanout && all_of_few);
    const bool waited = last >= 0;
    if (waited && good) picks[lane] = found;
    const uint32_t apart = __ballot_sync(kFullMask, waited && !good);
    __syncwarp();
    waiting = longest = end = 0;
    last = -1;
    return apart;
  }

 private:
  // The bits of places `base` up to `end`.
  __device__ __forceinline__ static uint32_t bits_below(uint32_t end, uint32_t base) {
    const uint32_t count = end - min(end, base);
    return count < 32 ? (1u << count) - 1 : ~0u;
  }
};

}  // namespace loader
