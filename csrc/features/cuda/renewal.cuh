// Which rows of a cache are replaced after a gather, and by which: see renewal.h.
//
// Ids of a gather may repeat. A row may then be written to two slots, of which one is nobody's and is
// replaced next.
#pragma once

#include "block_sums.cuh"
#include "features/cuda/gather.h"
#include "features/cuda/ids.cuh"
#include "features/cuda/renewal.h"
#include "machine_words.cuh"

namespace loader {

static_assert(kRenewalThreads == 1024, "sum_before wants it");

__device__ __forceinline__ int64_t first_thread() {
  return int64_t{blockIdx.x} * kRenewalThreads + threadIdx.x;
}
__device__ __forceinline__ int64_t all_threads() { return int64_t{gridDim.x} * kRenewalThreads; }

// The class of a row after gather `turn`.
__device__ __forceinline__ uint32_t class_of(uint8_t uses, uint8_t turn) {
  const uint32_t next = uses & kUse;
  if (next != kNoUse && next > turn && next - turn <= kMostTogether) return next - turn - 1;
  return uses & kHotRow ? kHotClass : kHotClass + 1;
}

// `words`: of `uses`.
__global__ void __launch_bounds__(kRenewalThreads) forget_uses(uint32_t* uses, const int64_t words) {
  constexpr uint32_t kNone = kNoUse * 0x01010101u;
  for (int64_t i = first_thread(); i < words; i += all_threads()) uses[i] |= kNone;
}

__global__ void __launch_bounds__(kRenewalThreads)
    note_uses(const __grid_constant__ RowCache cache, const __grid_constant__ Reading reading) {
  for (int64_t i = first_thread(); i < reading.n; i += all_threads()) {
    const int64_t id = id_at(reading, i);
    if (!in_range(cache, id)) continue;
    const uint8_t uses = cache.uses[id];
    reading.next[i] = uses & kUse;
    cache.uses[id] = (uses & kHotRow) | reading.turn;
  }
}

// After the gather its rows have the uses that follow. Clears the tally, too.
__global__ void __launch_bounds__(kRenewalThreads)
    advance_uses(const __grid_constant__ RowCache cache, const __grid_constant__ Reading reading) {
  if (blockIdx.x == 0 && threadIdx.x < sizeof(Tally) / sizeof(uint32_t))
    reinterpret_cast<uint32_t*>(cache.tally)[threadIdx.x] = 0;
  for (int64_t i = first_thread(); i < reading.n; i += all_threads()) {
    const int64_t id = id_at(reading, i);
    if (in_range(cache, id)) cache.uses[id] = (cache.uses[id] & kHotRow) | (reading.next[i] & kUse);
  }
}

// A row that may be kept: one of the gather that is not cached, or one of a slot.
struct Candidate {
  bool outside, inside;  // or neither
  uint32_t at;           // in the gather, or the slot
  uint32_t its_class;

  __device__ __forceinline__ Candidate(const RowCache& cache, const Reading& reading, int64_t i)
      : outside(false), inside(false), at(0), its_class(0) {
    int64_t id = 0;
    if (i < reading.n) {
      id = id_at(reading, i);
      outside = in_range(cache, id) && cache.slots[id] < 0;
      at = static_cast<uint32_t>(i);
    } else if (i - reading.n < cache.count) {
      inside = true;
      at = static_cast<uint32_t>(i - reading.n);
      id = cache.owners[at];
    }
    if (inside && id == kNobody)
      its_class = kClasses - 1;
    else if (inside || outside)
      its_class = class_of(cache.uses[id], reading.turn);
  }
};

__global__ void __launch_bounds__(kRenewalThreads)
    count_classes(const __grid_constant__ RowCache cache, const __grid_constant__ Reading reading) {
  __shared__ uint32_t counts[2 * kClasses];
  if (threadIdx.x < 2 * kClasses) counts[threadIdx.x] = 0;
  __syncthreads();
  const int64_t all = reading.n + cache.count;
  const int lane = threadIdx.x % kWarp;
  // Whole warps, in which each class that occurs is added once.
  for (int64_t i = first_thread(); i - lane < all; i += all_threads()) {
    const Candidate row(cache, reading, i);
    const uint32_t key = row.inside ? row.its_class : kClasses + row.its_class;
    const bool counted = row.inside || row.outside;
    for (uint32_t left = __ballot_sync(~0u, counted); left;) {
      const int leader = __ffs(left) - 1;
      const uint32_t its_key = __shfl_sync(~0u, key, leader);
      const uint32_t same = __ballot_sync(~0u, counted && key == its_key);
      if (lane == leader) atomicAdd(&counts[key], static_cast<uint32_t>(__popc(same)));
      left &= ~same;
    }
  }
  __syncthreads();
  if (threadIdx.x < 2 * kClasses && counts[threadIdx.x] > 0)
    atomicAdd(&cache.tally->rows[threadIdx.x], counts[threadIdx.x]);
}

// Rows of better classes than `its_class` are kept, rows of worse ones are not. Of the rows of the class
// itself those that are cached come first.
struct Border {
  uint32_t its_class;
  uint32_t leaving[2], coming[2];  // how many rows: of the other classes, and of this one

  __device__ __forceinline__ explicit Border(const Tally& tally) {
    const uint32_t *const inside = tally.rows, *const outside = tally.rows + kClasses;
    uint32_t room = 0;
    for (int c = 0; c < kClasses; ++c) room += inside[c];
    leaving[0] = room;
    coming[0] = its_class = 0;
    while (its_class < kClasses - 1 && inside[its_class] + outside[its_class] < room) {
      room -= inside[its_class] + outside[its_class];
      leaving[0] -= inside[its_class];
      coming[0] += outside[its_class++];
    }
    const uint32_t stay = min(inside[its_class], room);
    leaving[0] -= inside[its_class];
    leaving[1] = inside[its_class] - stay;
    coming[1] = min(outside[its_class], room - stay);
  }
};

// Adds a number to a list, in any order. `flag`: 0: not; 1: its class goes or comes as a whole; 2: it is of
// the border's class, of which only `wanted[1]` do. All threads of the block call it, one time after the
// other.
__device__ __forceinline__ void list(uint32_t* to, uint32_t* written, const uint32_t* wanted, uint32_t flag,
                                     uint32_t number, uint32_t* warps, uint32_t* bases) {
  // The numbers of both kinds in one sum: there are at most 1,024 of each.
  const uint32_t mine = flag == 1 ? 1u : flag == 2 ? 1u << 16 : 0u;
  const uint32_t before = sum_before(mine, warps);
  if (threadIdx.x == kRenewalThreads - 1) {
    const uint32_t all = before + mine;
    bases[0] = all & 0xffff ? atomicAdd(written, all & 0xffff) : 0;
    bases[1] = all >> 16 ? atomicAdd(written + 1, all >> 16) : 0;
  }
  __syncthreads();
  if (flag == 1) to[bases[0] + (before & 0xffff)] = number;
  const uint32_t place = bases[1] + (before >> 16);
  if (flag == 2 && place < wanted[1]) to[wanted[0] + place] = number;
}

__global__ void __launch_bounds__(kRenewalThreads)
    choose_rows(const __grid_constant__ RowCache cache, const __grid_constant__ Reading reading) {
  __shared__ uint32_t warps[kWarp], bases[2];
  const Border border(*cache.tally);
  const int64_t all = reading.n + cache.count;
  for (int64_t begin = int64_t{blockIdx.x} * kRenewalThreads; begin < all; begin += all_threads()) {
    const Candidate row(cache, reading, begin + threadIdx.x);
    const bool same = row.its_class == border.its_class;
    const bool goes = row.inside && row.its_class > border.its_class;
    const bool comes = row.outside && row.its_class < border.its_class;
    list(cache.leaving, cache.tally->leaving, border.leaving,
         goes                 ? 1
         : row.inside && same ? 2
                              : 0,
         row.at, warps, bases);
    list(cache.coming, cache.tally->coming, border.coming,
         comes                 ? 1
         : row.outside && same ? 2
                               : 0,
         row.at, warps, bases);
  }
}

// How many rows come; as many leave.
__device__ __forceinline__ uint32_t moves(const RowCache& cache) {
  const Border border(*cache.tally);
  return border.coming[0] + border.coming[1];
}

__global__ void __launch_bounds__(kRenewalThreads)
    move_slots(const __grid_constant__ RowCache cache, const __grid_constant__ Reading reading) {
  const uint32_t all = moves(cache);
  for (int64_t k = first_thread(); k < all; k += all_threads()) {
    const uint32_t slot = cache.leaving[k], owner = cache.owners[slot];
    if (owner != kNobody) cache.slots[owner] = -1;
    const int64_t id = id_at(reading, cache.coming[k]);
    const bool first = atomicCAS(&cache.slots[id], -1, static_cast<int32_t>(slot)) == -1;
    cache.owners[slot] = first ? static_cast<uint32_t>(id) : kNobody;
  }
}

// A warp a row.
template <int Bytes>
__global__ void __launch_bounds__(kRenewalThreads)
    copy_rows(const __grid_constant__ RowCache cache, const __grid_constant__ Reading reading) {
  const uint32_t all = moves(cache);
  const int64_t words = cache.row_bytes / Bytes;
  const int lane = threadIdx.x % kWarp;
  for (int64_t k = first_thread() / kWarp; k < all; k += all_threads() / kWarp) {
    const int64_t slot = cache.leaving[k], from = cache.coming[k];
    const auto* const source = reinterpret_cast<const Word<Bytes>*>(reading.rows + from * cache.row_bytes);
    auto* const target = reinterpret_cast<Word<Bytes>*>(cache.rows + slot * cache.row_bytes);
    for (int64_t i = lane; i < words; i += kWarp) target[i] = source[i];
  }
}

}  // namespace loader
