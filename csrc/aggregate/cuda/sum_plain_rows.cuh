// Means and sums of rows as they are, without ReLU and dropout: what the first layer reads of a table of
// features, and what typed layers read.
//
// A warp has some rows, each lane four neighboring columns. The warp reads the entries of its rows as one
// list, several at once, and writes a row after its last entry. Most rows have few entries: a warp that read
// them row by row would spend most of its time waiting for memory. Without the random numbers of dropout a
// lane needs few registers, so a multiprocessor has room for the loads that its memory takes at once.
//
// The rows of a warp are neighbors, whose entries follow on each other. With `in_turns` they are every n-th
// row of n warps: long rows may follow on each other, and one warp would sum them all.
#pragma once

#include <cstdint>

#include "aggregate/cuda/mean_passes.cuh"
#include "block_sums.cuh"

namespace loader {

template <typename T>
__device__ __forceinline__ void values_of(const Vector<T, kPlainColumns>& in,
                                          float (&values)[kPlainColumns]) {
#pragma unroll
  for (int i = 0; i < kPlainColumns; ++i)
    if constexpr (kIsCode<T>)
      values[i] = value_of(in.v[i]);
    else
      values[i] = widen(in.v[i]);
}

#ifdef __CUDA_ARCH__
// A code and 128 are the last bits of a float of 2^23: quicker than a conversion.
__device__ __forceinline__ void values_of(const Vector<int8, kPlainColumns>& in,
                                          float (&values)[kPlainColumns]) {
  uint32_t codes;
  memcpy(&codes, &in, sizeof(codes));
  codes ^= 0x80808080u;
#pragma unroll
  for (uint32_t i = 0; i < kPlainColumns; ++i)
    values[i] = __uint_as_float(__byte_perm(codes, 0x4B000000u, 0x7440u + i)) - (8388608.0f + 128.0f);
}

#if __CUDA_ARCH__ >= 890
// Two codes become two halves by one instruction; a half holds every code.
__device__ __forceinline__ void values_of(const Vector<float8, kPlainColumns>& in,
                                          float (&values)[kPlainColumns]) {
  uint16_t pairs[2];
  memcpy(pairs, &in, sizeof(pairs));
#pragma unroll
  for (int i = 0; i < 2; ++i)
    asm("{.reg .b32 halves; .reg .b16 low, high;\n"
        "cvt.rn.f16x2.e4m3x2 halves, %2; mov.b32 {low, high}, halves;\n"
        "cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
        : "=f"(values[2 * i]), "=f"(values[2 * i + 1])
        : "h"(pairs[i]));
}
#endif
#endif

// Rows of a warp, at most 32, and of them the columns that its lanes begin with at `column`.
template <bool kByRow, typename Pass>
struct PlainRows {
  using T = typename Pass::In;
  using Out = typename Pass::Out;
  using Id = typename Pass::Id;
  using Bits = Word<sizeof(T) * kPlainColumns>;  // of a lane's columns, taken apart when they are there
  static constexpr unsigned kAll = 0xFFFFFFFFu;
  static constexpr int kWarp = 32, kLoads = sizeof(Bits) > 8 ? 4 : 8;

  const Pass& pass;
  const int lane;
  const int64_t column;
  const bool has, first;
  const T* const from;  // these columns of x; those of the first lane where there are no more
  decltype(pass.template common<kPlainColumns>(0)) common{};

  __device__ PlainRows(const Pass& of, int64_t of_column)
      : pass(of),
        lane(threadIdx.x % kWarp),
        column(of_column),
        has(column < pass.dim),
        first(column == lane * kPlainColumns),
        from(pass.x.data + (has ? column : column - lane * kPlainColumns)) {
    if (has) common = pass.template common<kPlainColumns>(column);
  }

  // A row of x for each lane, and its scale if there is one for each row.
  struct Picks {
    Id row;
    float scale;

    __device__ Picks(const Pass& pass, Id of) : row(of) {
      if constexpr (kByRow) scale = __ldg(pass.scales.of + of);
    }
  };

  __device__ __forceinline__ void decode(const Bits& bits, float scale,
                                         float (&values)[kPlainColumns]) const {
    Vector<T, kPlainColumns> in;
    memcpy(&in, &bits, sizeof(in));
    values_of(in, values);
    if constexpr (kIsCode<T>) {
#pragma unroll
      for (int i = 0; i < kPlainColumns; ++i) values[i] = scaled(values[i], kByRow ? scale : common.v[i]);
    }
  }

  // Calls f(i, bits, scale) for the rows of x that lanes [0, count) pick, several loads at once. To ask less
  // often, all lanes read, and rows that other lanes pick, too.
  template <typename F>
  __device__ __forceinline__ void each(const Picks& picks, int count, const F& f) const {
#pragma unroll 1
    for (int i = 0; i < count; i += kLoads) {
      Bits in[kLoads];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        const Id picked = __shfl_sync(kAll, picks.row, i + u);
        in[u] = *reinterpret_cast<const Bits*>(from + int64_t{picked} * pass.x.stride);
      }
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        float scale = 0;
        if constexpr (kByRow) scale = __shfl_sync(kAll, picks.scale, i + u);
        if (i + u < count) f(i + u, in[u], scale);
      }
    }
  }

  // The destinations' own rows.
  __device__ __forceinline__ void own(int64_t row, int count) const {
    Out* const to = pass.own.data + row * pass.own.stride + column;
    const int here = static_cast<int>(max(min(row + count, pass.block.num_dst) - row, int64_t{0}));
    const Picks picks(pass, lane < here ? pass.row_of_source(row + lane) : Id{0});
    each(picks, here, [&](int i, const Bits& bits, float scale) {
      if (!has) return;
      float values[kPlainColumns];
      decode(bits, scale, values);
      store_scaled<Out, kPlainColumns, float>(to + i * pass.own.stride, values, 1.0f);
    });
    if (!has) return;
    for (int i = here; i < count; ++i)
      store_scaled<Out, kPlainColumns, float>(to + i * pass.own.stride, {}, 1.0f);
  }

  // The means, or sums, of short rows: a lane has the length of a row, and entry i of the list of all rows is
  // `entry_of(i, end)`, `end` being where the lane's row ends in it. So loads of one row's entries need not
  // wait for the sum of the row before. `write(now, sum, entries)` ends row `now`.
  template <typename EntryOf, typename Write>
  __device__ __forceinline__ void lists(int count, int length, const EntryOf& entry_of,
                                        const Write& write) const {
    const int end = sum_up_to(length);
    const int total = __shfl_sync(kAll, end, count - 1);
    int now = 0, now_begin = 0, now_end = __shfl_sync(kAll, end, 0);
    float sum[kPlainColumns] = {};
    const auto finish = [&] {
      write(now, sum, now_end - now_begin);
#pragma unroll
      for (int i = 0; i < kPlainColumns; ++i) sum[i] = 0;
      now_begin = now_end;
      now_end = __shfl_sync(kAll, end, ++now);
    };
    const auto picks_from = [&](int e) {
      const auto entry = entry_of(e + lane, end);  // which all lanes find together
      return Picks(pass, e + lane < total ? pass.pick(entry) : Id{0});
    };
    Picks picks = picks_from(0);
#pragma unroll 1
    for (int done = 0; done < total; done += kWarp) {
      const Picks next = picks_from(done + kWarp);
      each(picks, min(total - done, kWarp), [&](int i, const Bits& bits, float scale) {
#pragma unroll 1
        while (done + i == now_end) finish();
        float values[kPlainColumns];
        decode(bits, scale, values);
#pragma unroll
        for (int c = 0; c < kPlainColumns; ++c) sum[c] += values[c];
      });
      picks = next;
    }
#pragma unroll 1
    while (now < count) finish();
  }

  __device__ static float mean_of(int entries) {
    return entries == 0 ? 0.0f : 1.0f / static_cast<float>(entries);
  }

  // Of neighboring rows, whose entries begin at `begin`.
  __device__ __forceinline__ void means(int64_t row, int count, typename Pass::Index begin,
                                        int length) const {
    Out* to = pass.mean.data + row * pass.mean.stride + column;
    lists(
        count, length, [&](int i, int) { return begin + i; },
        [&](int, const float(&sum)[kPlainColumns], int entries) {
          if (has) store_scaled<Out, kPlainColumns, float>(to, sum, mean_of(entries));
          to += pass.mean.stride;
        });
  }

  // Rows `row`, `row + apart` and so on, without rows of their own and padding.
  __device__ __forceinline__ void in_turns(const LongRows& long_rows, int64_t row, int64_t apart,
                                           int count) const {
    using Index = typename Pass::Index;
    const bool there = lane < count;
    const int64_t here = row + lane * apart;
    const auto span = there ? pass.span(here) : Span<Index>{};
    const int64_t at = !there ? 0 : pass.block.at != nullptr ? pass.block.at[here] : here * pass.mean.stride;
    const bool is_long = span.length > kLongRowInTurns;
    if (is_long && first) long_rows.rows[atomicAdd(long_rows.count, 1ULL)] = here;
    const unsigned left_out = __ballot_sync(kAll, is_long);
    const int length = is_long ? 0 : static_cast<int>(span.length);
    const auto entry_of = [&](int i, int end) {
      int of = 0;  // the first row that ends behind entry i
#pragma unroll
      for (int step = 16; step > 0; step /= 2)
        if (__shfl_sync(kAll, end, of + step - 1) <= i) of += step;
      return __shfl_sync(kAll, static_cast<Index>(span.begin - (end - length)), of) + i;
    };
    lists(count, length, entry_of, [&](int now, const float(&sum)[kPlainColumns], int entries) {
      const int64_t to = __shfl_sync(kAll, at, now);
      if (has && (left_out >> now & 1U) == 0)
        store_scaled<Out, kPlainColumns, float>(pass.mean.data + to + column, sum,
                                                pass.block.sums ? 1.0f : mean_of(entries));
    });
  }

  __device__ __forceinline__ void all(const LongRows& long_rows, int64_t row, int count) const {
    if (pass.own.data != nullptr) own(row, count);
    const auto span = lane < count ? pass.span(row + lane) : Span<typename Pass::Index>{};
    const unsigned is_long = __ballot_sync(kAll, span.length > kLongRow);
#pragma unroll 1
    for (int at = 0; at < count; ++at) {
      const unsigned left = is_long >> at;
      const int here = min(count - at, left == 0 ? kWarp : __ffs(static_cast<int>(left)) - 1);
      if (here > 0) {
        const auto begin = __shfl_sync(kAll, span.begin, at);
        const int length = __shfl_down_sync(kAll, static_cast<int>(span.length), at);
        means(row + at, here, begin, lane < here ? length : 0);
        if (first)
          for (int i = 0; i < here; ++i) pass.pad(row + at + i, lane, kWarp);
      }
      at += here;
      if (at < count && first && lane == 0) long_rows.rows[atomicAdd(long_rows.count, 1ULL)] = row + at;
    }
  }
};

template <typename Pass>
__global__ void __launch_bounds__(kShortThreads, kPlainBlocks<typename Pass::In>)
    sum_plain_rows(Pass pass, LongRows long_rows, int rows_per_warp, bool in_turns) {
  pass.settle();
  const int64_t warp = (int64_t{blockIdx.x} * kShortThreads + threadIdx.x) / 32;
  const int64_t apart = in_turns ? int64_t{gridDim.x} * kShortThreads / 32 : 1;
  const int64_t row = in_turns ? warp : warp * rows_per_warp;
  const int64_t left = (pass.num_rows() - row + apart - 1) / apart;
  const int count = static_cast<int>(min(int64_t{rows_per_warp}, left));
  if (count <= 0) return;
#pragma unroll 1
  for (int64_t tile = 0; tile < pass.dim; tile += 32 * kPlainColumns) {
    const int64_t column = tile + threadIdx.x % 32 * kPlainColumns;
    if constexpr (kIsCode<typename Pass::In>) {  // not in turns: there are no registers left for that
      if (pass.scales.by_row)
        PlainRows<true, Pass>(pass, column).all(long_rows, row, count);
      else
        PlainRows<false, Pass>(pass, column).all(long_rows, row, count);
    } else {
      const PlainRows<false, Pass> rows(pass, column);
      if (in_turns)
        rows.in_turns(long_rows, row, apart, count);
      else
        rows.all(long_rows, row, count);
    }
  }
}

}  // namespace loader
