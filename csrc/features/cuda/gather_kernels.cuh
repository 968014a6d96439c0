// The two ways over the rows of a gather.
//
// `by_output` numbers the units of the output and gives them to consecutive threads: writes are whole and
// aligned whatever the length of a row, and no thread idles. Reads may straddle sectors, which memory beside
// the processor serves at little extra cost.
//
// `by_line` numbers the 128-byte lines that a row touches in its table and gives each to a group of threads
// that reads it in one request: over PCIe a request costs much more than a byte. A row that begins inside a
// line is read from the line's start on, with the threads before it idle (EMOGI, Min et al., VLDB 2020). Its
// blocks go over all rows in strides, as many as the launch says: how much is under way at once is a choice.
#pragma once

#include "features/cuda/gather.h"
#include "features/cuda/ids.cuh"
#include "features/cuda/row_units.cuh"

namespace loader {

__device__ __forceinline__ uint32_t quotient(const Divisor& by, uint32_t dividend) {
  return by.divisor == 1 ? dividend : __umulhi(dividend, by.magic);
}

// The row and the part of it that part `t` of a tile is. A tile of one row may have more parts than the
// division is exact for.
struct TilePart {
  uint32_t row, part;
  __device__ __forceinline__ TilePart(const Tiling& tiling, uint32_t t) {
    row = tiling.rows == 1 ? 0 : quotient(tiling.by_parts, t);
    part = t - row * tiling.parts;
  }
};

// The first thread of the grid that meets a bad id tells the host.
__device__ __noinline__ void report(const GatherArgs& args, int64_t position, int64_t id) {
  if (atomicExch(args.raised, 1u) != 0) return;
  volatile Notes* const notes = args.notes;
  notes->bad_id = id;
  notes->position = position;
  __threadfence_system();
  notes->bad_raised = 1;
}

template <typename Word>
__device__ __forceinline__ Word read_once(const uint8_t* address) {
  return __ldg(reinterpret_cast<const Word*>(address));
}

template <typename Unit, int kThreads, int kLoads>
__global__ void __launch_bounds__(kThreads)
    by_output(const __grid_constant__ typename Unit::Args args, const __grid_constant__ Tiling tiling) {
  using In = typename Unit::In;
  using Out = typename Unit::Out;
  const int64_t in_bytes = static_cast<int64_t>(tiling.parts) * sizeof(In);
  const int64_t first = blockIdx.x * tiling.rows;
  const uint32_t rows = static_cast<uint32_t>(min(tiling.rows, args.n - first));
  const uint32_t total = rows * tiling.parts;
  Out* const out = reinterpret_cast<Out*>(args.out) + first * tiling.parts;
  for (uint32_t begin = threadIdx.x; begin < total; begin += kThreads * kLoads) {
    int64_t id[kLoads];
    In word[kLoads];
    typename Unit::Scale scale[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const uint32_t t = begin + k * kThreads;
      id[k] = t < total ? id_at(args, first + TilePart(tiling, t).row) : 0;
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const uint32_t t = begin + k * kThreads;
      word[k] = In{};
      scale[k] = {};
      if (t >= total) continue;
      const TilePart place(tiling, t);
      if (in_range(args, id[k])) {
        word[k] = read_once<In>(args.table + id[k] * Unit::pitch(args, in_bytes) + place.part * sizeof(In));
        scale[k] = Unit::scale(args, id[k]);
      } else
        report(args, first + place.row, id[k]);
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const uint32_t t = begin + k * kThreads;
      if (t < total) out[t] = Unit::apply(args, word[k], scale[k], TilePart(tiling, t).part);
    }
  }
}

// The rows of a tile that are not in the cache, in any order. Which they are is looked up for the next tile
// before this one is read, and only then threads get their lines: so all have something under way, however
// many rows are cached.
template <int kThreads>
struct MissedRows {
  int64_t position[kThreads], id[kThreads];  // id: -1 if it is out of range
  uint32_t count;

  struct Candidate {
    int64_t position, id;
    bool missed;
  };

  __device__ __forceinline__ static Candidate look(const GatherArgs& args, int64_t i, int64_t end) {
    if (i >= end) return {0, 0, false};
    const int64_t position = args.positions ? __ldg(args.positions + i) : i;
    const int64_t id = id_at(args, position);
    if (!in_range(args, id)) return {position, id, true};
    if (args.marks)
      return {position, id, (__ldg(args.marks + position / kWarp) >> position % kWarp & 1) != 0};
    return {position, id, id < args.misses_below && __ldg(args.slots + id) < 0};
  }

  // All threads of the block, after and before a barrier.
  __device__ __forceinline__ void add(const GatherArgs& args, const Candidate& one) {
    const uint32_t votes = __ballot_sync(~0u, one.missed), lane = threadIdx.x % kWarp;
    uint32_t first = 0;
    if (lane == 0 && votes) first = atomicAdd(&count, static_cast<uint32_t>(__popc(votes)));
    const uint32_t at = __shfl_sync(~0u, first, 0) + __popc(votes & ((1u << lane) - 1));
    if (!one.missed) return;
    position[at] = one.position;
    id[at] = one.id;
    if (in_range(args, one.id)) return;
    id[at] = -1;
    report(args, one.position, one.id);
  }
};

// What of a gather is not in the cache, by the first blocks of the grid.
template <typename Unit, int kThreads, int kLoads>
__device__ __forceinline__ void read_misses(const typename Unit::Args& args, const MissBlocks& misses,
                                            uint32_t parts, int64_t in_bytes) {
  using In = typename Unit::In;
  using Out = typename Unit::Out;
  using Lanes = Group<sizeof(In)>;
  constexpr int kUnit = Lanes::kUnit, kSegment = Lanes::kSegment, kLanes = Lanes::kLanes;
  constexpr uint32_t kGroups = kThreads / kLanes;
  using Rows = MissedRows<kThreads>;
  __shared__ Rows rows;
  const uint32_t group = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int64_t row_units = in_bytes / kUnit;
  int64_t first = int64_t{blockIdx.x} * misses.rows;
  const auto look = [&] { return Rows::look(args, first + threadIdx.x, min(first + misses.rows, args.n)); };
  typename Rows::Candidate next = look();
  while (first < args.n) {
    if (threadIdx.x == 0) rows.count = 0;
    __syncthreads();
    rows.add(args, next);
    first += int64_t{misses.blocks} * misses.rows;
    next = look();
    __syncthreads();
    const uint32_t total = rows.count * parts;
    for (uint32_t begin = group; begin < total; begin += kGroups * kLoads) {
      int64_t position[kLoads];
      int64_t at[kLoads];  // in bytes of the row; negative before its begin
      In word[kLoads];
      typename Unit::Scale scale[kLoads];
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        const uint32_t t = begin + k * kGroups;
        word[k] = In{};
        scale[k] = {};
        at[k] = -1;
        if (t >= total) continue;
        const uint32_t row = t / parts, part = t - row * parts;
        position[k] = rows.position[row];
        const int64_t id = rows.id[row];
        const uint8_t* const source = args.table + (id < 0 ? 0 : id) * Unit::pitch(args, in_bytes);
        const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(source) % kSegment);
        at[k] = static_cast<int64_t>(part) * kSegment + static_cast<int>(lane * kUnit) - shift;
        if (at[k] >= in_bytes) at[k] = -1;
        if (id >= 0 && at[k] >= 0) {
          word[k] = read_once<In>(source + at[k]);
          scale[k] = Unit::scale(args, id);
        }
      }
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        if (at[k] < 0) continue;
        reinterpret_cast<Out*>(args.out)[position[k] * row_units + at[k] / kUnit] =
            Unit::apply(args, word[k], scale[k], at[k] / kUnit);
      }
    }
    __syncthreads();
  }
}

template <typename Unit, bool kCached, int kThreads, int kLoads>
__global__ void __launch_bounds__(kThreads)
    by_line(const __grid_constant__ typename Unit::Args args, const __grid_constant__ Tiling tiling,
            const int64_t in_bytes, const __grid_constant__ MissBlocks misses) {
  using In = typename Unit::In;
  using Out = typename Unit::Out;
  using Lanes = Group<sizeof(In)>;
  constexpr int kUnit = Lanes::kUnit, kSegment = Lanes::kSegment, kLanes = Lanes::kLanes;
  constexpr uint32_t kGroups = kThreads / kLanes;
  const uint32_t group = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int64_t row_units = in_bytes / kUnit;
  unsigned int hits = 0;
  // With a cache, the first blocks read what is not in it, and the others what is: rows in device memory
  // would wait behind those that come over the bus.
  if constexpr (kCached) {
    if (blockIdx.x < misses.blocks)
      return read_misses<Unit, kThreads, kMissLoads>(args, misses, tiling.parts, in_bytes);
  }
  const int64_t block = kCached ? blockIdx.x - misses.blocks : blockIdx.x;
  const int64_t blocks = kCached ? gridDim.x - misses.blocks : gridDim.x;
  for (int64_t first = block * tiling.rows; first < args.n; first += blocks * tiling.rows) {
    const uint32_t rows = static_cast<uint32_t>(min(tiling.rows, args.n - first));
    const uint32_t total = rows * tiling.parts;
    for (uint32_t begin = group; begin < total; begin += kGroups * kLoads) {
      int64_t position[kLoads];
      int64_t id[kLoads];
      int32_t slot[kLoads];
      int64_t at[kLoads];  // in bytes of the row; negative before its begin
      In word[kLoads];
      typename Unit::Scale scale[kLoads];
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        const uint32_t t = begin + k * kGroups;
        position[k] = first + TilePart(tiling, t).row;
        if (args.positions && t < total) position[k] = __ldg(args.positions + position[k]);
      }
#pragma unroll
      for (int k = 0; k < kLoads; ++k) id[k] = begin + k * kGroups < total ? id_at(args, position[k]) : 0;
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        const uint32_t t = begin + k * kGroups;
        slot[k] = kCached && t < total && in_range(args, id[k]) ? __ldg(args.slots + id[k]) : -1;
      }
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        const uint32_t t = begin + k * kGroups;
        word[k] = In{};
        scale[k] = {};
        at[k] = -1;
        if (t >= total || (kCached && slot[k] < 0)) continue;
        const TilePart place(tiling, t);
        const bool valid = in_range(args, id[k]);
        const int64_t pitch = Unit::pitch(args, in_bytes);
        const uint8_t* const row =
            kCached && slot[k] >= 0 ? args.cache + slot[k] * pitch : args.table + (valid ? id[k] : 0) * pitch;
        const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(row) % kSegment);
        at[k] = static_cast<int64_t>(place.part) * kSegment + static_cast<int>(lane * kUnit) - shift;
        if (at[k] >= in_bytes) at[k] = -1;
        if (valid && at[k] >= 0) {
          word[k] = read_once<In>(row + at[k]);
          scale[k] = Unit::scale(args, id[k]);
        }
        if (lane == 0 && place.part == 0) {
          hits += slot[k] >= 0;
          if (!valid) report(args, position[k], id[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        if (at[k] < 0) continue;
        reinterpret_cast<Out*>(args.out)[position[k] * row_units + at[k] / kUnit] =
            Unit::apply(args, word[k], scale[k], at[k] / kUnit);
      }
    }
  }
  if constexpr (kCached) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) hits += __shfl_down_sync(~0u, hits, offset);
    if (threadIdx.x % kWarp == 0 && hits > 0) atomicAdd(args.hits, static_cast<unsigned long long>(hits));
  }
}

}  // namespace loader
