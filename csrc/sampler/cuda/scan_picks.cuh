// The picks that a scan of lists found (list_scan.cuh), when they are taken.
#pragma once

#include "sampler/cuda/scan_state.cuh"

namespace loader {

// If all of these are picked, or more than there was room for, a block takes them, else a warp.
#ifndef LOADER_SAMPLER_LONG_LIST
#define LOADER_SAMPLER_LONG_LIST 4096
#endif
constexpr uint32_t kLongList = LOADER_SAMPLER_LONG_LIST;

template <typename Phases>
struct ScanPicks : ScannedLists<Phases> {
  using Base = ScannedLists<Phases>;
  using typename Base::List;
  using P = typename Phases::Edge;
  using N = typename Phases::Vertex;
  using Base::Base;
  using Base::fanout_of;
  using Base::hop;
  using Base::lane;
  using Base::list_of;
  using Base::phases;
  using Base::stored;
  using Base::width;
  using Base::width_of;

  // Whether entry `i` is picked; an entry behind the end is not. For lists of which more are picked than were
  // kept.
  __device__ __forceinline__ bool picks(const List& list, uint32_t i) const {
    if (i >= list.degree || list.whole) return i < list.degree;
    return picks_by(phases.choice(), list, i);
  }

  // Picks for the first `rows` vertices.
  __device__ void pick(int64_t rows) const {
    const int64_t first = int64_t{threadIdx.x / 32} * phases.blocks + phases.block;
    int64_t each = 32;  // rows of a warp: few are spread over all warps
    while (each > 1 && each * phases.warps() > 2 * rows) each /= 2;
    for (int64_t group = first; group * each < rows; group += phases.warps())
      take_group(group * each, min(rows, group * each + each));
    take_long(rows);
  }

 private:
  __device__ __forceinline__ bool picks_by(const RaceChoice& choice, const List& list, uint32_t i) const {
    return choice.weight(int64_t{list.begin} + i) > 0;
  }
  __device__ __forceinline__ bool picks_by(const LaborChoice& choice, const List& list, uint32_t i) const {
    const auto u = static_cast<uint64_t>(phases.lists().read(list.begin, i));
    return labor_picks(choice.numbers(phases.batch().keys(), hop)(u), list.degree,
                       static_cast<uint32_t>(fanout_of(list)));
  }
  __device__ __forceinline__ bool picks_by(const ScanChoice& choice, const List& list, uint32_t i) const {
    return choice.races ? picks_by(choice.race, list, i) : picks_by(choice.labor, list, i);
  }

  // The picks of up to 32 rows, edge by edge, if they are kept or known to be all of a short list; then those
  // of the other rows.
  __device__ void take_group(int64_t first_row, int64_t rows) const {
    constexpr int kEach = 4;
    const int64_t row = first_row + lane;
    const bool valid = row < rows;
    const List list = valid ? list_of(row) : List{0, 0, true, 0};
    const uint32_t picked = valid ? phases.row_picks()[row] : 0;
    const P out = valid ? phases.indptr(hop)[row] : 0;
    const bool is_short = list.degree <= kLongList;
    const bool is_stored = !list.whole && picked <= width_of(list);
    const bool all = list.whole && is_short;
    uint32_t total;
    const uint32_t before = warp_exclusive(is_stored || all ? picked : 0, total);
    const uint32_t* const places = stored() + first_row * width;
    for (uint32_t base = 0; base < total; base += 32 * kEach) {
      N u[kEach];
      P position[kEach], to[kEach];
      uint32_t count = 0;
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const uint32_t i = base + 32 * e + lane;
        uint32_t owner = 0;  // the last lane that has no more edges before its own
#pragma unroll
        for (uint32_t step = 16; step > 0; step /= 2)
          if (__shfl_sync(kFullMask, before, owner + step) <= i) owner += step;
        const uint32_t number = i - __shfl_sync(kFullMask, before, owner);
        const P begin = __shfl_sync(kFullMask, list.begin, owner);
        const bool takes_all = __shfl_sync(kFullMask, static_cast<int>(all), owner);
        to[e] = __shfl_sync(kFullMask, out, owner) + static_cast<P>(number);
        count += i < total;
        position[e] = begin;
        if (i < total) position[e] += static_cast<P>(takes_all ? number : places[owner * width + number]);
      }
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        if (e < static_cast<int>(count)) u[e] = phases.lists().read(position[e]);
      phases.note(hop, u, count);
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        if (e >= static_cast<int>(count)) continue;
        phases.indices(hop)[to[e]] = u[e];
        if (phases.args.edge_ids) phases.edge_ids(hop)[to[e]] = position[e];
      }
    }
    uint32_t others = __ballot_sync(kFullMask, picked > 0 && is_short && !is_stored && !all);
    for (; others; others &= others - 1) take_row(first_row + __ffs(others) - 1);
  }

  // The picks of a row by another look at its list. They wait until there are 32 of them, or it ends.
  __device__ void take_row(int64_t row) const {
    __shared__ uint32_t waiting_of[kWarps][64];
    uint32_t* const waiting = waiting_of[threadIdx.x / 32];
    const List list = list_of(row);
    P out = phases.indptr(hop)[row];
    uint32_t held = 0;
    const auto take = [&](uint32_t count) {
      __syncwarp();
      const bool valid = lane < count;
      const uint32_t i = valid ? waiting[lane] : 0;
      phases.take(hop, list.begin + static_cast<P>(i), out + static_cast<P>(lane), valid);
      out += static_cast<P>(count);
      held -= count;
      __syncwarp();
      if (lane < held) waiting[lane] = waiting[32 + lane];
      __syncwarp();
    };
    for (uint32_t i = lane; i - lane < list.degree; i += 32) {
      const bool picked = picks(list, i);
      const uint32_t votes = __ballot_sync(kFullMask, picked);
      if (picked) waiting[held + __popc(votes & ((1u << lane) - 1))] = i;
      held += __popc(votes);
      if (held >= 32) take(32);
    }
    if (held > 0) take(held);
  }

  // The picks of long lists of which more are picked than were kept, by whole blocks.
  __device__ void take_long(int64_t rows) const {
    __shared__ int num_long;
    __shared__ uint32_t long_rows[kBlock];
    for (int64_t first = 0; first < rows; first += int64_t{phases.blocks} * kBlock) {
      const int64_t row = first + int64_t{threadIdx.x} * phases.blocks + phases.block;
      if (threadIdx.x == 0) num_long = 0;
      __syncthreads();
      if (row < rows && phases.row_degree()[row] > kLongList) {
        const uint32_t picked = phases.row_picks()[row];
        if (picked > 0 && (list_of(row).whole || picked > width_of(list_of(row))))
          long_rows[atomicAdd(&num_long, 1)] = static_cast<uint32_t>(row);
      }
      __syncthreads();
      for (int i = 0; i < num_long; ++i) take_by_block(long_rows[i]);
      __syncthreads();
    }
  }

  __device__ void take_by_block(int64_t row) const {
    __shared__ uint32_t found_of[kWarps];
    const List list = list_of(row);
    P out = phases.indptr(hop)[row];
    for (uint32_t first = 0; first < list.degree; first += kBlock) {
      const uint32_t i = first + threadIdx.x;
      const bool picked = picks(list, i);
      const uint32_t votes = __ballot_sync(kFullMask, picked);
      if (lane == 0) found_of[threadIdx.x / 32] = __popc(votes);
      __syncthreads();
      uint32_t before = 0, all = 0;
#pragma unroll 1
      for (int w = 0; w < kWarps; ++w) {
        before += w < static_cast<int>(threadIdx.x / 32) ? found_of[w] : 0;
        all += found_of[w];
      }
      if (votes)
        phases.take(hop, list.begin + static_cast<P>(picked ? i : 0),
                    out + static_cast<P>(before + __popc(votes & ((1u << lane) - 1))), picked);
      out += static_cast<P>(all);
      __syncthreads();
    }
  }
};

}  // namespace loader
