// Means of rows as they are, without ReLU and dropout: what the first layer reads of a table of features.
//
// A warp takes a row, each lane four neighboring columns. Without the random numbers of dropout a lane needs
// few registers, so a multiprocessor has room for the loads that its memory takes at once.
#pragma once

#include <cstdint>

#include "aggregate/cuda/passes.cuh"

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

// The rows [row, end) of a warp, and of them the columns that its lanes begin with at `column`.
template <bool kByRow, typename Pass>
__device__ __forceinline__ void mean_of_rows(const Pass& pass, const LongRows& long_rows, int64_t row,
                                             int64_t end, int64_t column) {
  using T = typename Pass::In;
  using Id = typename Pass::Id;
  using Rows = Span<typename Pass::Index>;
  using Bits = Word<sizeof(T) * kPlainColumns>;  // of a lane's columns, taken apart when they are there
  constexpr int kWarp = 32, kLoads = 4;
  constexpr unsigned kAll = 0xFFFFFFFFu;
  const int lane = threadIdx.x % kWarp;
  const bool has = column < pass.dim, first = column == lane * kPlainColumns;
  decltype(pass.template common<kPlainColumns>(0)) common{};
  if (has) common = pass.template common<kPlainColumns>(column);
  const auto columns_of = [&](Id of) { return reinterpret_cast<const Bits*>(pass.row_of(of) + column); };
  // f of the columns of a row `of`, whose scale is `of_row` if there is one for each row.
  const auto decoded = [&](const Bits& bits, float of_row, float(&values)[kPlainColumns]) {
    Vector<T, kPlainColumns> in;
    memcpy(&in, &bits, sizeof(in));
    values_of(in, values);
    if constexpr (kIsCode<T>) {
#pragma unroll
      for (int i = 0; i < kPlainColumns; ++i) values[i] = scaled(values[i], kByRow ? of_row : common.v[i]);
    }
  };
  const auto scale_of = [&](Id of) {
    if constexpr (kByRow) return __ldg(pass.scales.of + of);
    return 0.0f;
  };
  // What comes next is asked for while a row is summed: its picks, a lane each, and the span after it.
  const auto span_of = [&](int64_t r) { return r < end ? pass.span(r) : Rows{}; };
  const auto pick_of = [&](const Rows& span) {
    return lane < span.length ? pass.pick(span.begin + lane) : Id{0};
  };
  const bool owns = pass.own.data != nullptr;
  const auto own_of = [&](int64_t r) {
    return owns && r < end && r < pass.block.num_dst ? pass.row_of_source(r) : Id{0};
  };
  Rows span = span_of(row), next = span_of(row + 1);
  Id picks = pick_of(span), own = own_of(row);
#pragma unroll 1
  for (; row < end; ++row) {
    const Id next_picks = pick_of(next), next_own = own_of(row + 1);
    const Rows after = span_of(row + 2);
    if (span.length > kLongRow) {
      if (first && lane == 0) long_rows.rows[atomicAdd(long_rows.count, 1ULL)] = row;
    } else {
      const bool own_here = owns && has && row < pass.block.num_dst;
      Bits of_own{};
      if (own_here) of_own = *columns_of(own);
      const int length = static_cast<int>(span.length);
      float sum[kPlainColumns] = {};
#pragma unroll 1
      for (int done = 0; done < length; done += kWarp) {
        if (done > 0) picks = done + lane < length ? pass.pick(span.begin + done + lane) : Id{0};
        const int here = min(length - done, kWarp);
#pragma unroll
        for (int u0 = 0; u0 < kWarp; u0 += kLoads) {
          if (u0 >= here) break;
          Bits bits[kLoads];
          float of_row[kLoads];
#pragma unroll
          for (int u = 0; u < kLoads; ++u) {
            const Id picked = __shfl_sync(kAll, picks, u0 + u);
            if (!has || u0 + u >= here) continue;
            bits[u] = *columns_of(picked);
            of_row[u] = scale_of(picked);
          }
#pragma unroll
          for (int u = 0; u < kLoads; ++u) {
            if (!has || u0 + u >= here) continue;
            float values[kPlainColumns];
            decoded(bits[u], of_row[u], values);
#pragma unroll
            for (int i = 0; i < kPlainColumns; ++i) sum[i] += values[i];
          }
        }
      }
      if (has)
        store_scaled<typename Pass::Out, kPlainColumns, float>(
            pass.mean.data + row * pass.mean.stride + column, sum,
            length == 0 ? 0.0f : 1.0f / static_cast<float>(length));
      if (owns && has) {
        float values[kPlainColumns] = {};
        if (own_here) decoded(of_own, scale_of(own), values);
        store_scaled<typename Pass::Out, kPlainColumns, float>(pass.own.data + row * pass.own.stride + column,
                                                               values, 1.0f);
      }
      if (first) pass.pad(row, lane, kWarp);
    }
    span = next;
    next = after;
    picks = next_picks;
    own = next_own;
  }
}

template <typename Pass>
__global__ void __launch_bounds__(kShortThreads, kPlainBlocks)
    sum_plain_rows(Pass pass, LongRows long_rows, int rows_per_warp) {
  pass.settle();
  const int64_t row = (int64_t{blockIdx.x} * kShortThreads + threadIdx.x) / 32 * rows_per_warp;
  const int64_t end = min(row + rows_per_warp, pass.num_rows());
  if (row >= end) return;
#pragma unroll 1
  for (int64_t tile = 0; tile < pass.dim; tile += 32 * kPlainColumns) {
    const int64_t column = tile + threadIdx.x % 32 * kPlainColumns;
    if constexpr (kIsCode<typename Pass::In>) {
      if (pass.scales.by_row) {
        mean_of_rows<true>(pass, long_rows, row, end, column);
        continue;
      }
    }
    mean_of_rows<false>(pass, long_rows, row, end, column);
  }
}

}  // namespace loader
