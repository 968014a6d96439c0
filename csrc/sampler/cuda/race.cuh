// A race (race.h) by a warp, in one look at the list: 256 entries at a time, whose weights wait in registers.
//
// Of nearly all entries a bound from their random number and weight shows that they arrive too late: later
// than the last of those that are kept, or as long as there are too few of them, than a guess at the time
// when enough of the 256 have arrived. Only for the others the arrival is worked out, 32 together. So what is
// picked does not depend on the guess, nor on how a list is cut.
#pragma once

#include "sampler/cuda/collectives.cuh"
#include "sampler/race.h"

namespace loader {

constexpr uint64_t kNeverBits = uint64_t{0x7FF} << 52;  // of an infinite double
constexpr float kMostFloat = 3.4028234663852886e38f;

// The bits of a double that is not negative are in its order.
LOADER_HD uint64_t bits_of(double x) {
#ifdef __CUDA_ARCH__
  return static_cast<uint64_t>(__double_as_longlong(x));
#else
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof x);
  return bits;
#endif
}
LOADER_HD double from_bits(uint64_t bits) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(static_cast<long long>(bits));
#else
  double x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

// An infinite float.
LOADER_HD float never() { return static_cast<float>(from_bits(kNeverBits)); }

// Memory of a warp for the entries that are first so far, and for those that may be, in list order.
struct RaceBuffer {
  uint64_t* times;   // [fanout + kRaceEntries] bits of the arrival; before it is known, the random number
  uint32_t* places;  // [fanout + kRaceEntries]
};

// Keeps the compiler from working out what follows from x before it is needed.
__device__ __forceinline__ uint32_t only_now(uint32_t x) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

struct WarpRace {
  const RaceBuffer buffer;
  const uint32_t fanout, lane;
  uint32_t held = 0;            // the first of those seen so far, in the buffer
  uint64_t limit = kNeverBits;  // the last of them, if there are `fanout`: others come before it or too late

  __device__ WarpRace(const RaceBuffer& buffer, uint32_t fanout)
      : buffer(buffer), fanout(fanout), lane(threadIdx.x % 32) {
#ifdef __CUDA_ARCH__  // else each access would ask what memory it is
    __builtin_assume(__isShared(buffer.times));
    __builtin_assume(__isShared(buffer.places));
#endif
  }

  // Bounds a weight by a float, above 0 if it is; -1 for one that is not allowed.
  __device__ __forceinline__ static float bounded(float w) { return w >= 0 && w <= kMostFloat ? w : -1.0f; }
  __device__ __forceinline__ static float bounded(double w) {
    if (!(w >= 0 && w <= kLast)) return -1.0f;
    if (w > static_cast<double>(kMostFloat)) return never();
    const auto rounded = static_cast<float>(w);
    return rounded > 0 || !(w > 0) ? rounded : 1.401298464324817e-45f;
  }

  // The weights of up to kRaceEntries entries, or bounds of them, as far as they are a lane's; behind the end
  // 0.
  struct Weights {
    float of[2 * kRaceRounds];
    bool good;  // all are finite and not negative
  };

  // Which of them a lane has as its number e: in each round the two that share a block of random words. So
  // far behind its first one.
  __device__ __forceinline__ static constexpr uint32_t place_of(uint32_t e) { return 64 * (e / 2) + e % 2; }

  // All are loaded before the first is looked at. Of more than kRaceEntries, those that are looked at next
  // are asked for, together.
  template <typename W>
  __device__ __forceinline__ Weights weights_of(const W* list, uint32_t count) const {
    if (count > kRaceEntries)
      prefetch_first(list + kRaceEntries, min(count - kRaceEntries, kRaceEntries + 1));
    const W* const own = list + 2 * lane;
    const uint32_t left = count - min(count, 2 * lane);
    W w[2 * kRaceRounds];
#pragma unroll
    for (uint32_t e = 0; e < 2 * kRaceRounds; ++e) w[e] = place_of(e) < left ? load(own + place_of(e)) : W{0};
    Weights weights;
    weights.good = all_good(w);
#pragma unroll
    for (uint32_t e = 0; e < 2 * kRaceRounds; ++e) weights.of[e] = at_least(w[e]);
    return weights;
  }

  // Of all lanes.
  __device__ __forceinline__ static float sum_of(const Weights& weights) {
    float sum = 0;
#pragma unroll
    for (const float w : weights.of) sum += w;
    return warp_sum(sum);
  }

  // A float that is above 0 if the weight is; of a weight that is not allowed any.
  __device__ __forceinline__ static float at_least(float w) { return w; }
  __device__ __forceinline__ static float at_least(double w) { return bounded(w); }

  __device__ __forceinline__ static bool all_good(const float (&w)[2 * kRaceRounds]) {
    // The bits of a float that is not negative are in its order. Those of -0 are not.
    uint32_t most = 0;
#pragma unroll
    for (const float each : w) most = max(most, word_of(each));
    return most < 0x7F800000u || all_bounded(w);
  }
  __device__ __forceinline__ static bool all_good(const double (&w)[2 * kRaceRounds]) {
    return all_bounded(w);
  }
  template <typename W>
  __device__ __forceinline__ static bool all_bounded(const W (&w)[2 * kRaceRounds]) {
    bool good = true;
#pragma unroll
    for (const W each : w) good &= bounded(each) >= 0;
    return good;
  }

  // Races the entries [first, first + count) of the list that begins at `begin` of all weights; `first` is
  // even. Returns the number of a place whose weight is not allowed, or -1.
  template <typename W>
  __device__ __forceinline__ int64_t run(const W* all, int64_t begin, uint32_t first, uint32_t count,
                                         const Draws& draws) {
    const W* const list = all + begin;
    uint32_t bad = 0;  // one more than a place of the list
    for (uint32_t end = first + count; first < end; first += kRaceEntries) {
      const uint32_t left = end - first, entries = min(left, kRaceEntries);
      const Weights weights = weights_of(list + first, left);
      if (!weights.good)
        for (uint32_t e = 0; e < 2 * kRaceRounds; ++e) {
          const uint32_t i = 2 * lane + place_of(e);
          if (i < entries && bounded(load(list + first + i)) < 0) bad = first + i + 1;
        }
      // By a guess only if none is kept: else one that is kept might arrive after it.
      const bool guesses = held == 0;
      double most = from_bits(limit);
      if (guesses) most = static_cast<double>(guess(sum_of(weights), entries));
      for (double next = 3 * most;; next = from_bits(kNeverBits)) {
        step(list, first, entries, weights.of, draws, most);
        if (!guesses || held >= fanout || !(most <= kLast) || held == num_positive(list + first, entries))
          break;
        held = 0;
        most = next;
      }
    }
    return bad > 0 ? begin + bad - 1 : -1;
  }

  template <typename W>
  __device__ uint32_t num_positive(const W* weights, uint32_t count) const {
    uint32_t positive = 0;
#pragma unroll 1
    for (uint32_t i = lane; i < count; i += 32) positive += bounded(load(weights + i)) > 0;
    return warp_sum(positive);
  }

  // A time before which more than `fanout` of this many entries arrive with a probability near 1, as on the
  // CPU. Infinite if there is none.
  __device__ __forceinline__ float guess(float sum, uint32_t entries) const {
    const auto most = static_cast<float>(fanout);
    const float wanted = most + 2 * sqrt_of(most) + 1, x = about(wanted, static_cast<float>(entries));
    const float time = about(wanted * (1 + x / 2 + x * x) * 2.0791876e17f, sum);
    return x <= 0.9f && time <= kMostFloat ? time : never();
  }

  // Puts the entries [first, first + count) of a list, up to kRaceEntries, into the buffer from `end` on that
  // may come before `bound`: their random numbers, and their places with the bits of `tag`. `w`: see Weights.
  // Returns the new end, or if that were beyond `room`, a number beyond it.
  __device__ __forceinline__ uint32_t sift(uint32_t first, uint32_t count, const float (&w)[2 * kRaceRounds],
                                           const Draws& draws, float bound, uint32_t end, uint32_t room,
                                           uint32_t tag) const {
    // See race_scan.cpp: an entry comes before `bound` only if this times half its number's upper word is at
    // most `bound` times the weight.
    constexpr float kLeast = 1.44f / 128 * 8589934592.0f;
    const uint32_t before_lane = (1u << lane) - 1;
    const auto early = [&](uint32_t high, float weight) {
      return weight > 0 && !(kLeast * static_cast<float>(high >> 1) > bound * weight);
    };
#pragma unroll
    for (uint32_t r = 0; r < kRaceRounds; ++r) {
      if (64 * r >= count) break;
      const Words words = draws.block(only_now(first / 2 + 32 * r + lane));
      const bool one = early(words.w[1], w[2 * r]), two = early(words.w[3], w[2 * r + 1]);
      const uint32_t ones = __ballot_sync(kFullMask, one), twos = __ballot_sync(kFullMask, two);
      uint32_t to = end + __popc(ones & before_lane) + __popc(twos & before_lane);
      end += __popc(ones) + __popc(twos);
      if (end > room) break;
      const uint32_t place = tag | (first + 64 * r + 2 * lane);
      if (one) {
        buffer.times[to] = words.w[0] | uint64_t{words.w[1]} << 32;
        buffer.places[to++] = place;
      }
      if (two) {
        buffer.times[to] = words.w[2] | uint64_t{words.w[3]} << 32;
        buffer.places[to] = place + 1;
      }
    }
    return end;
  }

  // The entries [first, first + count) of a list, up to kRaceEntries, that arrive before `most`. `w`: see
  // Weights.
  template <typename W>
  __device__ __forceinline__ void step(const W* list, uint32_t first, uint32_t count,
                                       const float (&w)[2 * kRaceRounds], const Draws& draws, double most) {
    const float bound = most <= static_cast<double>(kMostFloat) ? static_cast<float>(most) : never();
    const uint32_t end = sift(first, count, w, draws, bound, held, ~0u, 0);
    if (end == held) return;
    __syncwarp();
    const uint64_t last = bits_of(most);
    uint32_t stayed = held;
    for (uint32_t i = held + lane; i - lane < end; i += 32) {
      uint32_t place = 0;
      uint64_t time = kNeverBits;
      if (i < end) {
        place = buffer.places[i];
        time = bits_of(arrival(buffer.times[i], static_cast<double>(load(list + place))));
      }
      __syncwarp();  // all have read theirs
      stayed = keep(stayed, i < end && time < last, time, place);
    }
    held = stayed;
    keep_first();
  }

  // Writes an entry of each lane that `stays` behind the `stayed` ones. Lanes have read theirs before.
  __device__ uint32_t keep(uint32_t stayed, bool stays, uint64_t time, uint32_t place) const {
    const uint32_t votes = __ballot_sync(kFullMask, stays);
    if (stays) {
      const uint32_t to = stayed + __popc(votes & ((1u << lane) - 1));
      buffer.times[to] = time;
      buffer.places[to] = place;
    }
    __syncwarp();
    return stayed + __popc(votes);
  }

  // Leaves the first `fanout`, if there are as many. Of two that arrive together the first of the list is.
  __device__ __forceinline__ void keep_first() {
    if (held < fanout) return;
    if (held <= 64) return keep_first_of_few();
    const First first = first_of_many(buffer, fanout, held);
    held = first.held;
    limit = first.limit;
  }

  struct First {
    uint32_t held;
    uint64_t limit;
  };

  // Out of line: a kernel has up to four places where there may be many, and there seldom are.
  __device__ __noinline__ static First first_of_many(RaceBuffer buffer, uint32_t fanout, uint32_t held) {
    WarpRace race(buffer, fanout);
    race.held = held;
    race.keep_first_of_many();
    return {race.held, race.limit};
  }

  __device__ void keep_first_of_many() {
    limit = kth();
    uint32_t equal = 0;
    for (uint32_t i = lane; i - lane < held; i += 32) equal += i < held && buffer.times[i] < limit;
    equal = fanout - warp_sum(equal);  // of those that arrive at the limit this many stay
    if (held == fanout) return;
    uint32_t stayed = 0;
    for (uint32_t i = lane; i - lane < held; i += 32) {
      const uint64_t time = i < held ? buffer.times[i] : kNeverBits;
      const uint32_t place = i < held ? buffer.places[i] : 0;
      const uint32_t ties = __ballot_sync(kFullMask, time == limit);
      const bool tied = time == limit && static_cast<uint32_t>(__popc(ties & ((1u << lane) - 1))) < equal;
      equal -= min(equal, static_cast<uint32_t>(__popc(ties)));
      stayed = keep(stayed, time < limit || tied, time, place);
    }
    held = stayed;
  }

  // The same of up to 64: each is compared with all, by the upper words unless that leaves it open.
  __device__ __forceinline__ void keep_first_of_few() {
    const bool has_one = lane < held, has_two = 32 + lane < held, many = held > 32;
    const uint64_t one = has_one ? buffer.times[lane] : kNeverBits;
    const uint64_t two = has_two ? buffer.times[32 + lane] : kNeverBits;
    const auto upper_one = static_cast<uint32_t>(one >> 32), upper_two = static_cast<uint32_t>(two >> 32);
    uint32_t before_one = 0, before_two = 0;
    if (!many) {
#pragma unroll 4
      for (uint32_t j = 0; j < held; ++j) before_one += __shfl_sync(kFullMask, upper_one, j) < upper_one;
    } else {
#pragma unroll 4
      for (uint32_t j = 0; j < 32; ++j) {
        const uint32_t other = __shfl_sync(kFullMask, upper_one, j),
                       next = __shfl_sync(kFullMask, upper_two, j);
        before_one += (other < upper_one) + (next < upper_one);
        before_two += (other < upper_two) + (next < upper_two);
      }
    }
    const auto stay = [&](bool has, uint32_t before) {
      return __ballot_sync(kFullMask, has && before < fanout);
    };
    uint32_t ones = stay(has_one, before_one), twos = many ? stay(has_two, before_two) : 0;
    uint32_t last = __ballot_sync(kFullMask, has_one && before_one == fanout - 1);
    uint32_t last_two = many ? __ballot_sync(kFullMask, has_two && before_two == fanout - 1) : 0;
    if (static_cast<uint32_t>(__popc(ones) + __popc(twos)) != fanout || (last | last_two) == 0) {
      before_one = before_two = 0;
#pragma unroll 1
      for (uint32_t j = 0; j < held; ++j) {
        const uint64_t other = buffer.times[j];
        before_one += other < one || (other == one && j < lane);
        before_two += other < two || (other == two && j < 32 + lane);
      }
      last = __ballot_sync(kFullMask, has_one && before_one == fanout - 1);
      last_two = __ballot_sync(kFullMask, has_two && before_two == fanout - 1);
    }
    limit = __shfl_sync(kFullMask, last ? one : two, __ffs(last ? last : last_two) - 1);
    const uint32_t place_of_one = has_one ? buffer.places[lane] : 0;
    const uint32_t place_of_two = has_two ? buffer.places[32 + lane] : 0;
    __syncwarp();
    held = keep(0, has_one && before_one < fanout, one, place_of_one);
    if (many) held = keep(held, has_two && before_two < fanout, two, place_of_two);
  }

  // The arrival of number `fanout`, by bisection. It ends early, at the last of those that come before some
  // time, if they are `fanout`.
  __device__ uint64_t kth() const {
    uint64_t low = 0, high = kNeverBits;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      uint32_t count = 0;
      uint64_t last = 0;
#pragma unroll 1
      for (uint32_t i = lane; i < held; i += 32) {
        const uint64_t time = buffer.times[i];
        if (time > middle) continue;
        ++count;
        last = max(last, time);
      }
      count = warp_sum(count);
      if (count == fanout) return warp_max(last);
      if (count > fanout)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  // Adds an entry of each lane that was among the first of its piece, or one that never arrives. Pieces come
  // in order; `keep_first` follows after at most kRaceEntries.
  __device__ __forceinline__ void add(uint64_t time, uint32_t place) {
    held = keep(held, time < limit, time, place);
  }

 private:
  // About a / b: for what need not be exact.
  __device__ static float about(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fdividef(a, b);
#else
    return a / b;
#endif
  }
  __device__ static uint32_t word_of(float x) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    uint32_t word;
    __builtin_memcpy(&word, &x, sizeof x);
    return word;
#endif
  }
  __device__ static float sqrt_of(float x) {
#ifdef __CUDA_ARCH__
    return __fsqrt_rn(x);
#else
    return __builtin_sqrtf(x);
#endif
  }
};

struct RaceResult {
  uint32_t held;  // in the buffer, in list order
  int64_t bad;    // see WarpRace::run
};

// A race by itself. In line: so the compiler knows that the buffer is in shared memory.
template <typename W>
__device__ __forceinline__ RaceResult race_of(const W* weights, RaceBuffer buffer, uint32_t fanout,
                                              int64_t begin, uint32_t first, uint32_t count,
                                              const Draws& draws) {
  WarpRace race(buffer, fanout);
  const int64_t bad = race.run(weights, begin, first, count, draws);
  return {race.held, bad};
}

}  // namespace loader
