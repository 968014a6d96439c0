// Picks that only a look at the whole list tells, LABOR's: a warp looks at a list, 32 entries at a time, a
// block at one that is long. Lists are looked at twice: to count, before there is room for the picks, and to
// pick.
#pragma once

#include "sampler/cuda/picking.cuh"

namespace loader {

// Lists with more entries are a block's.
#ifndef LOADER_SAMPLER_LONG_LIST
#define LOADER_SAMPLER_LONG_LIST 4096
#endif
constexpr uint32_t kLongList = LOADER_SAMPLER_LONG_LIST;

// `Phases`: a Picking whose choice scans. `hop`: at which is picked.
template <typename Phases>
struct Scan {
  using P = typename Phases::Edge;
  using N = typename Phases::Vertex;

  const Phases& phases;
  const int hop;
  const SourceNumbers numbers;
  const int64_t fanout;

  __device__ Scan(const Phases& phases, int hop)
      : phases(phases),
        hop(hop),
        numbers(phases.args.choice.numbers(phases.batch().keys(), hop)),
        fanout(phases.args.fanouts[hop - 1]) {}

  struct List {
    P begin;
    uint32_t degree;
    bool whole;
  };

  __device__ List list_of(int64_t row) const {
    const uint32_t degree = phases.row_degree()[row];
    return {phases.row_begin()[row], degree, phases.args.choice.whole(degree, fanout)};
  }

  // Whether entry `i` is picked; an entry behind the end is not.
  __device__ __forceinline__ bool picks(const List& list, uint32_t i) const {
    if (i >= list.degree || list.whole) return i < list.degree;
    const auto u = static_cast<uint64_t>(phases.args.lists.read(list.begin, i));
    return labor_picks(numbers(u), list.degree, static_cast<uint32_t>(fanout));
  }

  // Calls `f(row, list)` with the short lists of this warp and, by all threads of the block, `g(row, list)`
  // with the long ones of this block. All blocks of the mini-batch call it.
  template <typename F, typename G>
  __device__ void for_each_list(int64_t rows, const F& f, const G& g) const {
    for (int64_t row = phases.warp(); row < rows; row += phases.warps()) {
      const List list = list_of(row);
      if (list.degree <= kLongList) f(row, list);
      __syncwarp();
    }
    __shared__ int num_long;
    __shared__ uint32_t long_rows[kBlock];
    for (int64_t first = 0; first < rows; first += int64_t{phases.blocks} * kBlock) {
      const int64_t row = first + int64_t{threadIdx.x} * phases.blocks + phases.block;
      if (threadIdx.x == 0) num_long = 0;
      __syncthreads();
      if (row < rows && phases.row_degree()[row] > kLongList)
        long_rows[atomicAdd(&num_long, 1)] = static_cast<uint32_t>(row);
      __syncthreads();
      for (int i = 0; i < num_long; ++i) g(long_rows[i], list_of(long_rows[i]));
      __syncthreads();
    }
  }

  // Counts the picks of the first `rows` vertices.
  __device__ void count(int64_t rows) const {
    __shared__ unsigned sum;
    const auto of_warp = [&](const List& list, uint32_t first, uint32_t step) {
      uint32_t found = 0;
#pragma unroll 4
      for (uint32_t i = first; i - phases.lane < list.degree; i += step) found += picks(list, i);
      return warp_sum(found);
    };
    for_each_list(
        rows,
        [&](int64_t row, const List& list) {
          const uint32_t found = list.whole ? list.degree : of_warp(list, phases.lane, 32);
          if (phases.lane == 0) phases.row_picks()[row] = found;
        },
        [&](int64_t row, const List& list) {
          if (threadIdx.x == 0) sum = 0;
          __syncthreads();
          const uint32_t found = list.whole ? 0 : of_warp(list, threadIdx.x, kBlock);
          if (phases.lane == 0) atomicAdd(&sum, found);
          __syncthreads();
          if (threadIdx.x == 0) phases.row_picks()[row] = list.whole ? list.degree : sum;
          __syncthreads();
        });
  }

  // Picks for the first `rows` vertices. Picks of a short list wait until there are 32 of them, or it ends.
  __device__ void pick(int64_t rows) const {
    __shared__ uint32_t waiting_of[kWarps][64];
    __shared__ uint32_t found_of[kWarps];
    uint32_t* const waiting = waiting_of[threadIdx.x / 32];
    const P* const indptr = phases.indptr(hop);
    const uint32_t lane = phases.lane, before_lane = (1u << lane) - 1;
    for_each_list(
        rows,
        [&](int64_t row, const List& list) {
          P out = indptr[row];
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
            if (picked) waiting[held + __popc(votes & before_lane)] = i;
            held += __popc(votes);
            if (held >= 32) take(32);
          }
          if (held > 0) take(held);
        },
        [&](int64_t row, const List& list) {
          P out = indptr[row];
          for (uint32_t first = 0; first < list.degree; first += kBlock) {
            const uint32_t i = first + threadIdx.x;
            const bool picked = picks(list, i);
            const uint32_t votes = __ballot_sync(kFullMask, picked);
            if (lane == 0) found_of[threadIdx.x / 32] = __popc(votes);
            __syncthreads();
            uint32_t before = 0, all = 0;
            for (int w = 0; w < kWarps; ++w) {
              before += w < static_cast<int>(threadIdx.x / 32) ? found_of[w] : 0;
              all += found_of[w];
            }
            if (votes)
              phases.take(hop, list.begin + static_cast<P>(picked ? i : 0),
                          out + static_cast<P>(before + __popc(votes & before_lane)), picked);
            out += static_cast<P>(all);
            __syncthreads();
          }
        });
  }
};

}  // namespace loader
