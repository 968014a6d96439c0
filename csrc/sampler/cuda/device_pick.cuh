// The picks of pick.h in registers: one thread picks a whole row, with no branch that depends on the draws.
#pragma once

#include <utility>

#include "count_below.cuh"
#include "sampler/choice.h"

namespace loader {

constexpr uint32_t kNoPick = 0xFFFFFFFFu;

// The comparators of Batcher's odd-even merge sort of K values.
template <int K>
struct SortingNetwork {
  int low[K * K + 1] = {}, high[K * K + 1] = {}, size = 0;
  constexpr SortingNetwork() {
    for (int p = 1; p < K; p *= 2)
      for (int q = p; q >= 1; q /= 2)
        for (int j = q % p; j + q < K; j += 2 * q)
          for (int i = 0; i < q && i + j + q < K; ++i)
            if ((i + j) / (2 * p) == (i + j + q) / (2 * p)) {
              low[size] = i + j;
              high[size++] = i + j + q;
            }
  }
};

template <int Low, int High, int K>
__device__ __forceinline__ void compare_exchange(uint32_t (&t)[K]) {
  const uint32_t a = t[Low], b = t[High];
  t[Low] = min(a, b);
  t[High] = max(a, b);
}

// Sorts registers: every index is a constant of the program, so nothing goes to local memory.
template <int K, size_t... I>
__device__ __forceinline__ void sort_registers(uint32_t (&t)[K], std::index_sequence<I...>) {
  constexpr SortingNetwork<K> network{};
  (compare_exchange<network.low[I], network.high[I]>(t), ...);
}

template <int K>
__device__ __forceinline__ void sort_registers(uint32_t (&t)[K]) {
  sort_registers<K>(t, std::make_index_sequence<SortingNetwork<K>{}.size>{});
}

// The blocks [first, first + B) of random words. Each round is done for all of them, since one round of a
// block waits for the round before; so the rounds can be a loop, which is a tenth of the code.
template <int B>
__device__ __forceinline__ void draw_blocks(const Draws& draws, uint32_t first, Words (&blocks)[B]) {
  PhiloxKey key(draws.key);
#pragma unroll
  for (int b = 0; b < B; ++b)
    blocks[b] = {
        {static_cast<uint32_t>(draws.lane), static_cast<uint32_t>(draws.lane >> 32), draws.step, first + b}};
#pragma unroll 1
  for (int round = 0; round < kPhiloxRounds; ++round, key.bump()) {
#pragma unroll
    for (int b = 0; b < B; ++b) {
      uint32_t(&w)[4] = blocks[b].w;
      philox_round(w[0], w[1], w[2], w[3], key);
    }
  }
}

// Draw `i` with its rare rejections: out of line, so that it costs the usual path no registers.
static __device__ __noinline__ uint32_t bounded_again(Draws draws, uint32_t m, uint32_t i) {
  return draws.bounded(draws.block(i / 4).w[i % 4], m, i);
}

// The picked positions of a row, ascending, kNoPick beyond the last; returns their number. `fanout` <= K.
template <int K>
__device__ __forceinline__ uint32_t pick_registers(const Draws& draws, uint32_t degree, uint32_t fanout,
                                                   bool replace, uint32_t (&t)[K]) {
  if (degree == 0 || (!replace && degree <= fanout)) {
#pragma unroll
    for (int i = 0; i < K; ++i) t[i] = i < static_cast<int>(degree) ? i : kNoPick;
    return degree;
  }
  bool again = false;
  constexpr int kBlocks = (K + 3) / 4,
                kTogether = kBlocks <= 5 ? kBlocks : kBlocks / 2;  // as registers allow
#pragma unroll
  for (int first = 0; first < kBlocks; first += kTogether) {
    Words blocks[kTogether];
    draw_blocks(draws, first, blocks);
#pragma unroll
    for (int w = 4 * first; w < 4 * (first + kTogether) && w < K; ++w) {
      const uint32_t m = replace ? degree : degree - fanout + w + 1;
      const uint64_t product = uint64_t{blocks[w / 4 - first].w[w % 4]} * m;
      t[w] = w < static_cast<int>(fanout) ? static_cast<uint32_t>(product >> 32) : kNoPick;
      again |= w < static_cast<int>(fanout) && static_cast<uint32_t>(product) < m;
    }
  }
  if (again) {
#pragma unroll
    for (int w = 0; w < K; ++w)
      if (w < static_cast<int>(fanout))
        t[w] = bounded_again(draws, replace ? degree : degree - fanout + w + 1, w);
  }
  if (!replace) {  // Floyd: a position that was taken gives way to the last one
#pragma unroll
    for (int i = 1; i < K; ++i) {
      bool taken = false;
#pragma unroll
      for (int j = 0; j < i; ++j) taken |= t[j] == t[i];
      if (taken && i < static_cast<int>(fanout)) t[i] = degree - fanout + i;
    }
  }
  sort_registers<K>(t);
  return fanout;
}

// The values of a warp's lanes, ascending.
__device__ __forceinline__ uint32_t sort_lanes(uint32_t t) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (uint32_t size = 2; size <= 32; size *= 2) {
#pragma unroll
    for (uint32_t by = size / 2; by > 0; by /= 2) {
      const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, t, by);
      t = ((lane & size) == 0) == ((lane & by) == 0) ? min(t, other) : max(t, other);
    }
  }
  return t;
}

// Merges the values of the first lanes that have one (`own`), ascending over the lanes, into `n` ascending
// entries of shared memory, by a warp. Of lanes without one, `t` is kNoPick.
__device__ __forceinline__ void merge_lanes(uint32_t* entries, uint32_t n, uint32_t t, bool own) {
  const uint32_t lane = threadIdx.x % 32, place = lane + count_below(entries, n, t);
  for (uint32_t end = n; end > 0; end -= min(end, 32u)) {  // entries move up, so the last ones go first
    const uint32_t at = (end > 32 ? end - 32 : 0) + lane;
    const uint32_t entry = at < end ? entries[at] : 0;
    uint32_t below = 0;  // values of lanes that come before it: as many as are not above it
#pragma unroll
    for (uint32_t step = 16; step > 0; step /= 2)
      if (__shfl_sync(0xFFFFFFFFu, t, below + step - 1) <= entry) below += step;
    if (__shfl_sync(0xFFFFFFFFu, t, below) <= entry) ++below;
    __syncwarp();
    if (at < end) entries[at + below] = entry;
    __syncwarp();
  }
  if (own) entries[place] = t;
  __syncwarp();
}

// What pick_registers picks, for fanouts up to kMaxFanout, by a warp, in `out` (shared memory, `fanout`
// entries). Each lane makes a draw, and all look at theirs at once. Floyd's position is taken if an earlier
// draw has it, or gave way to it.
__device__ inline uint32_t pick_warp(const Draws& draws, uint32_t degree, uint32_t fanout, bool replace,
                                     uint32_t* out) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t first = 0; first < fanout; first += 32) {
    const uint32_t i = first + lane, last = replace ? degree - 1 : degree - fanout + i;
    const bool own = i < fanout;
    uint32_t t = own ? draws.bounded(draws.block(i / 4).w[i % 4], last + 1, i) : kNoPick;
    if (!replace) {
      bool taken = false;
      if (own) {
        const uint32_t place = count_below(out, first, t);
        taken = place < first && out[place] == t;
      }
      const unsigned equal = __match_any_sync(0xFFFFFFFFu, t);
      taken |= own && (equal & ((1u << lane) - 1)) != 0;
      const uint32_t giver = t - (degree - fanout + first);  // the lane that would give way to `t`
      uint32_t gave = 0;
      for (uint32_t found = __ballot_sync(0xFFFFFFFFu, taken); found != gave;) {
        gave = found;
        taken |= own && giver < lane && (gave >> giver & 1) != 0;
        found = __ballot_sync(0xFFFFFFFFu, taken);
      }
      if (taken) t = last;
    }
    t = sort_lanes(t);
    merge_lanes(out, first, t, own);
  }
  return fanout;
}

// The picks of a choice: positions in the list of `degree` places from `begin` on. The first by one thread,
// in registers, of any list; the others by a warp, in shared memory, of lists that are not picked whole.

template <int K, typename Lists>
__device__ __forceinline__ uint32_t pick_row(const UniformChoice& choice, const Lists& /*lists*/,
                                             typename Lists::Edge /*begin*/, uint32_t degree,
                                             const Draws& draws, uint32_t fanout, uint32_t (&t)[K]) {
  return pick_registers<K>(draws, degree, fanout, choice.replace, t);
}

template <typename Lists>
__device__ __forceinline__ void pick_row_by_warp(const UniformChoice& choice, const Lists& /*lists*/,
                                                 typename Lists::Edge /*begin*/, uint32_t degree,
                                                 const Draws& draws, uint32_t count, uint32_t* out) {
  pick_warp(draws, degree, count, choice.replace, out);
}

}  // namespace loader
