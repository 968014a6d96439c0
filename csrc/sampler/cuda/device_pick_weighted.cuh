// The picks of weighted.h on the GPU: a row by one thread, in registers, or by a warp.
#pragma once

#include "graph/lists.h"
#include "sampler/cuda/device_pick.cuh"

namespace loader {

// Draw `i` below `m` with its rare rejections: out of line, as bounded_again.
static __device__ __noinline__ uint64_t bounded_pair_again(Draws draws, uint64_t words, uint64_t m,
                                                           uint32_t i) {
  return draws.bounded_pair(words, m, i);
}

// A list's table, whose entries are loaded as what no kernel writes.
struct DeviceTable {
  WeightedList list;

  __device__ __forceinline__ uint32_t entry(const Draws& draws, uint64_t words, uint32_t i) const {
    const uint64_t mass = list.mass();
    const uint64_t place =
        words * mass < mass ? bounded_pair_again(draws, words, mass, i) : multiply_high(words, mass);
    const auto at = static_cast<uint32_t>(place >> 32);
    const auto cell = load(reinterpret_cast<const unsigned long long*>(list.cells) + at);  // threshold, alias
    return static_cast<uint32_t>(place) < static_cast<uint32_t>(cell) ? at
                                                                      : static_cast<uint32_t>(cell >> 32);
  }
};

// What is missing when draws repeated entries too often, out of line: `out` holds `n` picks, ascending.
static __device__ __noinline__ void pick_missing(Draws draws, WeightedList list, uint32_t n, uint32_t fanout,
                                                 uint32_t* out) {
  pick_from_ends(draws, list, n, fanout, out);
}

// The picked positions of a row, ascending, kNoPick beyond the last; returns their number. `fanout` <= K.
template <int K>
__device__ __forceinline__ uint32_t pick_weighted_registers(const Draws& draws, const WeightedList& list,
                                                            uint32_t fanout, bool replace, uint32_t (&t)[K]) {
  const uint32_t degree = list.degree;
  if (degree == 0 || (!replace && degree <= fanout)) {
#pragma unroll
    for (int i = 0; i < K; ++i) t[i] = i < static_cast<int>(degree) ? i : kNoPick;
    return degree;
  }
  const DeviceTable table{list};
  constexpr int kBlocks = (K + 1) / 2, kTogether = kBlocks <= 5 ? kBlocks : 4;  // as registers allow
#pragma unroll
  for (int first = 0; first < kBlocks; first += kTogether) {
    Words blocks[kTogether];
    draw_blocks(draws, first, blocks);
#pragma unroll
    for (int w = 2 * first; w < 2 * (first + kTogether) && w < K; ++w)
      t[w] = w < static_cast<int>(fanout) ? table.entry(draws, Draws::pair_of(blocks[w / 2 - first], w), w)
                                          : kNoPick;
  }
  sort_registers<K>(t);
  if (replace) return fanout;
  uint32_t n = 0;
  bool repeated = false;
#pragma unroll
  for (int i = 0; i < K; ++i) {
    const bool again = i > 0 && t[i] == t[i > 0 ? i - 1 : 0] && t[i] != kNoPick;
    repeated |= again;
    n += t[i] != kNoPick && !again;
  }
  if (!repeated) return fanout;
    // Repeats make room: they become kNoPick, from the end, so that each is still beside its like.
#pragma unroll
  for (int i = K - 1; i > 0; --i)
    if (t[i] == t[i - 1]) t[i] = kNoPick;
  const uint32_t most = draws_from_cells(fanout);
  Words words = draws.block(fanout / 2);
  for (uint32_t i = fanout; i < most && n < fanout; ++i) {
    if (i % 2 == 0 && i > fanout) words = draws.block(i / 2);
    const uint32_t drawn = table.entry(draws, Draws::pair_of(words, i), i);
    bool is_new = true;
#pragma unroll
    for (int j = 0; j < K; ++j) is_new &= t[j] != drawn;
    n += is_new;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const bool here = is_new && t[j] == kNoPick;
      t[j] = here ? drawn : t[j];
      is_new &= !here;
    }
  }
  sort_registers<K>(t);
  if (n < fanout) {
    uint32_t out[K];
#pragma unroll
    for (int i = 0; i < K; ++i) out[i] = t[i];
    pick_missing(draws, list, n, fanout, out);
#pragma unroll
    for (int i = 0; i < K; ++i) t[i] = i < static_cast<int>(fanout) ? out[i] : kNoPick;
  }
  return fanout;
}

// Moves out[place..n) up by one and puts `t` into the gap, by a warp. `out`: shared memory.
__device__ inline void insert_by_warp(uint32_t* out, uint32_t n, uint32_t place, uint32_t t) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t end = n; end > place; end -= min(end - place, 32u)) {
    const bool moves = lane < end - place;
    const uint32_t moved = moves ? out[end - 1 - lane] : 0;
    __syncwarp();
    if (moves) out[end - lane] = moved;
    __syncwarp();
  }
  if (lane == 0) out[place] = t;
  __syncwarp();
}

// Where `t` belongs in the ascending out[0..n): behind all that are not larger.
__device__ inline uint32_t place_behind(const uint32_t* out, uint32_t n, uint32_t t) {
  uint32_t place = n;
  for (uint32_t low = 0; low < place;) {
    const uint32_t mid = (low + place) / 2;
    if (out[mid] > t)
      place = mid;
    else
      low = mid + 1;
  }
  return place;
}

// The same by a warp, for rows that are not picked whole, of fanouts up to kMaxFanout, in `out` (shared
// memory, `fanout` entries). Each lane makes a draw; they are looked at in their order.
__device__ inline void pick_weighted_warp(const Draws& draws, const WeightedList& list, uint32_t fanout,
                                          bool replace, uint32_t* out) {
  const uint32_t lane = threadIdx.x % 32, most = replace ? fanout : draws_from_cells(fanout);
  const DeviceTable table{list};
  uint32_t n = 0;
  for (uint32_t first = 0; first < most && n < fanout; first += 32) {
    const uint32_t i = first + lane;
    const uint32_t drawn = i < most ? table.entry(draws, draws.pair(i), i) : 0;
    for (uint32_t l = 0; l < min(32u, most - first) && n < fanout; ++l) {
      const uint32_t t = __shfl_sync(0xFFFFFFFFu, drawn, l), place = place_behind(out, n, t);
      if (!replace && place > 0 && out[place - 1] == t) continue;
      insert_by_warp(out, n++, place, t);
    }
  }
  if (n == fanout) return;
  // Subtracts the masses of the picked entries, 32 at a time; `left` is the mass of the entries that remain.
  const auto mass_of = [&](uint32_t i) { return i < n ? list.mass(out[i]) : 0; };
  const auto inclusive = [&](uint64_t x) {
    for (uint32_t offset = 1; offset < 32; offset *= 2) {
      const uint64_t below = __shfl_up_sync(0xFFFFFFFFu, x, offset);
      if (lane >= offset) x += below;
    }
    return x;
  };
  uint64_t left = list.mass();
  for (uint32_t first = 0; first < n; first += 32)
    left -= __shfl_sync(0xFFFFFFFFu, inclusive(mass_of(first + lane)), 31);
  for (; n < fanout; ++n) {
    const uint32_t number = kDrawsFromEnds + n;
    const uint64_t place = draws.bounded_pair(draws.pair(number), left, number);
    // What is picked before an entry moves it down, so picks are passed one after the other until one is not.
    uint64_t before = 0;
    for (uint32_t first = 0; first < n; first += 32) {
      const uint32_t i = first + lane;
      const uint64_t mass = mass_of(i), sum = inclusive(mass);
      const bool passed = i < n && list.begin(out[i]) <= place + before + (sum - mass);
      const uint32_t lanes = __popc(__ballot_sync(0xFFFFFFFFu, passed));  // the first ones
      if (lanes > 0) before += __shfl_sync(0xFFFFFFFFu, sum, lanes - 1);
      if (lanes < 32) break;
    }
    const uint32_t entry = list.entry_by_end(place + before);
    left -= list.mass(entry);
    insert_by_warp(out, n, place_behind(out, n, entry), entry);
  }
}

template <int K, typename Lists>
__device__ __forceinline__ uint32_t pick_row(const WeightedChoice& choice, const Lists& /*lists*/,
                                             typename Lists::Edge begin, uint32_t degree, const Draws& draws,
                                             uint32_t fanout, uint32_t (&t)[K]) {
  return pick_weighted_registers<K>(draws, choice.list(begin, degree), fanout, choice.replace, t);
}

template <typename Lists>
__device__ __forceinline__ void pick_row_by_warp(const WeightedChoice& choice, const Lists& /*lists*/,
                                                 typename Lists::Edge begin, uint32_t degree,
                                                 const Draws& draws, uint32_t count, uint32_t* out) {
  pick_weighted_warp(draws, choice.list(begin, degree), count, choice.replace, out);
}

// The heaviest: a list's order begins with them.

template <int K, typename Lists>
__device__ __forceinline__ uint32_t pick_row(const TopKChoice& choice, const Lists& /*lists*/,
                                             typename Lists::Edge begin, uint32_t degree,
                                             const Draws& /*draws*/, uint32_t fanout, uint32_t (&t)[K]) {
  const bool all = degree <= fanout;
  const uint32_t count = all ? degree : fanout;
#pragma unroll
  for (int i = 0; i < K; ++i)
    t[i] = i < static_cast<int>(count) ? (all ? i : load(choice.order + begin + i)) : kNoPick;
  sort_registers<K>(t);
  return count;
}

template <typename Lists>
__device__ __forceinline__ void pick_row_by_warp(const TopKChoice& choice, const Lists& /*lists*/,
                                                 typename Lists::Edge begin, uint32_t /*degree*/,
                                                 const Draws& /*draws*/, uint32_t count, uint32_t* out) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t t = load(choice.order + begin + i);
    insert_by_warp(out, i, place_behind(out, i, t), t);
  }
}

}  // namespace loader
