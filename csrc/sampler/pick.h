// The choice of a vertex's neighbors, written once for host and device.
//
// A pick is a pure function of (batch key, step, lane, degree, fanout): random words come from the
// counter-based generator Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011), whose counter holds the lane, the step and the index of the draw. So every schedule on every device
// picks the same.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace loader {

constexpr int kMaxFanout = 1024;
constexpr int kMaxHops = 8;
constexpr int64_t kAllNeighbors = -1;

struct Words {
  uint32_t w[4];
};

constexpr int kPhiloxRounds = 10;

struct PhiloxKey {
  uint32_t k0, k1;
  LOADER_HD explicit PhiloxKey(uint64_t key)
      : k0(static_cast<uint32_t>(key)), k1(static_cast<uint32_t>(key >> 32)) {}
  LOADER_HD void bump() {
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
};

LOADER_HD void philox_round(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, const PhiloxKey& k) {
  const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
  c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k.k0;
  c1 = static_cast<uint32_t>(p1);
  c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k.k1;
  c3 = static_cast<uint32_t>(p0);
}

LOADER_HD Words philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key) {
  PhiloxKey k(key);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int round = 0; round < kPhiloxRounds; ++round, k.bump()) philox_round(c0, c1, c2, c3, k);
  return {{c0, c1, c2, c3}};
}

// What random words are drawn for. Each purpose has words of its own.
enum class Purpose : uint32_t { kPick = 0, kOrder = 1, kWalk = 2, kNegative = 3, kTurn = 4 };

// The high half of a product of 128 bits.
LOADER_HD uint64_t multiply_high(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
#endif
}

// The key of all draws of one mini-batch for one purpose.
LOADER_HD uint64_t batch_key(uint64_t seed, uint64_t epoch, uint64_t batch,
                             Purpose purpose = Purpose::kPick) {
  const Words at = philox(static_cast<uint32_t>(batch), static_cast<uint32_t>(batch >> 32),
                          static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32), seed);
  const Words r = philox(at.w[0], at.w[1], at.w[2], static_cast<uint32_t>(purpose), seed);
  return r.w[0] | uint64_t{r.w[1]} << 32;
}

// The random words of one lane at one step of a mini-batch: word i is word i % 4 of the Philox block i / 4.
// For k-hop picks the lane is the row's and the step the hop, see draws_of; for walks the lane is the walker,
// else two walkers that meet would never part. There are 2^24 steps, and 255 redraws of each word. A redraw
// changes Philox's word of the step. To change its word of the index would cost kernels a register.
struct Draws {
  uint64_t key;  // of the mini-batch and the purpose, see batch_key
  uint64_t lane;
  uint32_t step;

  LOADER_HD Words block(uint32_t index, uint32_t attempt = 0) const {
    return philox(static_cast<uint32_t>(lane), static_cast<uint32_t>(lane >> 32), step | attempt << 24, index,
                  key);
  }

  // Draw i as a number uniform in [0, m), given its word: Lemire's multiply-shift with rejection (ACM TOMACS
  // 2019), so exactly uniform. The words of a redraw come from the same lane's counters with attempt > 0.
  LOADER_HD uint32_t bounded(uint32_t word, uint32_t m, uint32_t i) const {
    uint64_t product = uint64_t{word} * m;
    if (static_cast<uint32_t>(product) < m) {
      const uint32_t reject_below = (0u - m) % m;
      for (uint32_t attempt = 1; static_cast<uint32_t>(product) < reject_below; ++attempt)
        product = uint64_t{block(i, attempt).w[0]} * m;
    }
    return static_cast<uint32_t>(product >> 32);
  }

  // Draw i of those that take two words: words 2 * (i % 2) and the next of block i / 2, the lower one first.
  LOADER_HD uint64_t pair(uint32_t i) const { return pair_of(block(i / 2), i); }
  LOADER_HD static uint64_t pair_of(const Words& block, uint32_t i) {
    return i % 2 ? block.w[2] | uint64_t{block.w[3]} << 32 : block.w[0] | uint64_t{block.w[1]} << 32;
  }

  // `bounded` with 64 bits: draw i uniform in [0, m), given its pair of words. Redraws are the first pair of
  // block i with attempt > 0.
  LOADER_HD uint64_t bounded_pair(uint64_t words, uint64_t m, uint32_t i) const {
    if (words * m < m) {
      const uint64_t reject_below = (0 - m) % m;
      for (uint32_t attempt = 1; words * m < reject_below; ++attempt) words = pair_of(block(i, attempt), 0);
    }
    return multiply_high(words, m);
  }
};

// The draws for the picks of a row (graph/lists.h) at a hop, wherever they are made.
template <typename Row>
LOADER_HD Draws draws_of(uint64_t key, const Row& row, int hop) {
  return {key, row.lane(), static_cast<uint32_t>(hop) | row.slot << 8};
}

// The lane of a seed that `copy` seeds before it equal: with 0 that of the vertex.
LOADER_HD uint64_t lane_of_copy(uint64_t lane, uint32_t copy) { return lane | uint64_t{copy} << 40; }

// Number of picks of a vertex of in-degree `degree`.
LOADER_HD int64_t pick_count(int64_t degree, int64_t fanout, bool replace) {
  if (fanout == kAllNeighbors) return degree;
  if (replace) return degree > 0 ? fanout : 0;
  return degree < fanout ? degree : fanout;
}

// True where the picks are the whole list, so that no random number is drawn.
LOADER_HD bool picks_all(int64_t degree, int64_t fanout, bool replace) {
  return fanout == kAllNeighbors || (!replace && degree <= fanout);
}

// Where `t` belongs in the ascending list out[0..n), behind its like.
LOADER_HD uint32_t place_of(const uint32_t* out, uint32_t n, uint32_t t) {
  uint32_t place = n;
  if (n < 24) {
    while (place > 0 && out[place - 1] > t) --place;
  } else {
    for (uint32_t low = 0; low < place;) {
      const uint32_t mid = (low + place) / 2;
      if (out[mid] > t)
        place = mid;
      else
        low = mid + 1;
    }
  }
  return place;
}

// Puts `t` at `place` of the list out[0..n).
LOADER_HD void insert_at(uint32_t* out, uint32_t n, uint32_t place, uint32_t t) {
  for (uint32_t q = n; q > place; --q) out[q] = out[q - 1];
  out[place] = t;
}

// Puts `t` into the ascending list out[0..i); where it is there already and `instead` is not negative, puts
// `instead`, which exceeds all of the list.
LOADER_HD void insert_position(uint32_t* out, uint32_t i, uint32_t t, int64_t instead) {
  const uint32_t place = place_of(out, i, t);
  if (instead >= 0 && place > 0 && out[place - 1] == t) {
    out[i] = static_cast<uint32_t>(instead);
    return;
  }
  insert_at(out, i, place, t);
}

#ifndef __CUDA_ARCH__
// Sorts `count` <= Width draws into `out` if no two are equal; false, with nothing written, if some are.
// Without a branch: a draw's place is the number of smaller ones. Draws are below 2^31.
template <int Width>
inline bool sort_distinct(const uint32_t* draws, uint32_t count, uint32_t* out) {
  int32_t t[Width], rank[Width] = {};
  for (uint32_t i = 0; i < Width; ++i) t[i] = i < count ? static_cast<int32_t>(draws[i]) : INT32_MAX;
  for (uint32_t j = 0; j < count; ++j)
    for (int i = 0; i < Width; ++i) rank[i] += t[i] > t[j];
  uint32_t ordered_pairs = 0;
  for (uint32_t i = 0; i < count; ++i) ordered_pairs += rank[i];
  if (ordered_pairs != count * (count - 1) / 2) return false;
  for (uint32_t i = 0; i < count; ++i) out[rank[i]] = draws[i];
  return true;
}
#endif

#ifndef __CUDA_ARCH__
// Floyd's method on a set of bits, for lists of up to 64 * MaxWords entries: `draws` may collide, bits come
// out in order.
template <int MaxWords>
inline void floyd_bits(const uint32_t* draws, uint32_t degree, uint32_t fanout, uint32_t* out) {
  uint64_t bits[MaxWords] = {};
  for (uint32_t i = 0; i < fanout; ++i) {
    const uint32_t t = draws[i], last = degree - fanout + i;
    const uint32_t taken = MaxWords == 1 ? bits[0] >> t & 1 : bits[t / 64] >> t % 64 & 1;
    const uint32_t pick = taken ? last : t;
    bits[MaxWords == 1 ? 0 : pick / 64] |= uint64_t{1} << pick % 64;
  }
  for (uint32_t word = 0; word < (degree + 63) / 64; ++word)
    for (uint64_t left = bits[word]; left; left &= left - 1)
      *out++ = 64 * word + static_cast<uint32_t>(__builtin_ctzll(left));
}
#endif

// Turns the random words of a vertex (word i at words[i]) into its `fanout` picked positions, ascending, in
// `out`; for lists of `degree` < 2^31 entries that are not picked whole (see picks_all).
//
// Without replacement: Floyd's method (Bentley and Floyd, "A sample of brilliance", CACM 1987). Draw i is
// uniform in [0, j] with j = degree - fanout + i; where it was taken already, j itself is picked, which
// exceeds all so far. So draws that all differ are the picks. The cost depends only on the fanout, never on
// the degree.
LOADER_HD void positions_from_words(const Draws& draws, const uint32_t* words, uint32_t degree,
                                    uint32_t fanout, bool replace, uint32_t* out) {
  const uint32_t first = replace ? degree - 1 : degree - fanout, step = replace ? 0 : 1;
#ifndef __CUDA_ARCH__
  if (fanout <= 32) {
    uint32_t t[32];
    uint32_t maybe_rejected = 0;
    for (uint32_t i = 0; i < fanout; ++i) {
      const uint32_t m = first + step * i + 1;
      const uint64_t product = uint64_t{words[i]} * m;
      t[i] = static_cast<uint32_t>(product >> 32);
      maybe_rejected |= static_cast<uint32_t>(product) < m;
    }
    if (maybe_rejected)
      for (uint32_t i = 0; i < fanout; ++i) t[i] = draws.bounded(words[i], first + step * i + 1, i);
    if (!replace && degree <= 64) return floyd_bits<1>(t, degree, fanout, out);
    if (!replace && degree <= 256) return floyd_bits<4>(t, degree, fanout, out);
    if (fanout <= 16 ? sort_distinct<16>(t, fanout, out) : sort_distinct<32>(t, fanout, out)) return;
    if (!replace && degree <= 1024) return floyd_bits<16>(t, degree, fanout, out);
    for (uint32_t i = 0; i < fanout; ++i) insert_position(out, i, t[i], replace ? -1 : int64_t{first + i});
    return;
  }
#endif
  for (uint32_t i = 0; i < fanout; ++i) {
    const uint32_t t = draws.bounded(words[i], first + step * i + 1, i);
    insert_position(out, i, t, replace ? -1 : int64_t{first + i});
  }
}

// The `fanout` picked positions of a vertex, ascending, in `out`: the specification in one call.
LOADER_HD void pick_positions(const Draws& draws, uint32_t degree, uint32_t fanout, bool replace,
                              uint32_t* out) {
  uint32_t words[kMaxFanout];
  for (uint32_t i = 0; i < fanout; i += 4) {
    const Words block = draws.block(i / 4);
    for (uint32_t w = i; w < i + 4 && w < fanout; ++w) words[w] = block.w[w - i];
  }
  positions_from_words(draws, words, degree, fanout, replace, out);
}

}  // namespace loader
