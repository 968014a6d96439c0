// Sums of rows that are picked by index: what the mean and its gradient have in common.
//
// A group of 2^k neighboring lanes sums a row, each lane up to two vectors of 16 bytes (less where the
// layout is not so well aligned), loads of four picked rows under way at a time. Long rows go to a
// list that a second kernel works off, a thread block for each slice of their columns.
#pragma once

#include <cstdint>

#include "aggregate/cuda/mean_passes.cuh"

namespace loader {

constexpr int kLongRowLoads = 4;

// The first picks of a row, asked for while the row before it is summed.
template <typename Pass>
__device__ __forceinline__ void first_picks(const Pass& pass, const Span<typename Pass::Index>& span,
                                            int64_t longest, typename Pass::Id (&picks)[Pass::kLoads]) {
#pragma unroll
  for (int u = 0; u < Pass::kLoads; ++u)
    picks[u] = u < span.length && span.length <= longest ? pass.pick(span.begin + u) : Pass::kNone;
}

// The columns of one row that belong to this lane, from `tile` on.
template <int N, typename Pass>
__device__ __forceinline__ void sum_tile(const Pass& pass, int64_t row,
                                         const Span<typename Pass::Index>& span,
                                         const typename Pass::Id (&first)[Pass::kLoads], int64_t tile,
                                         int lanes) {
  using T = typename Pass::In;
  using S = typename Pass::S;
  using Id = typename Pass::Id;
  constexpr int K = kVectors<N>;
  const auto column = [&](int k) { return tile + int64_t{k} * lanes * N; };
  typename Pass::template Early<N> early_rows[K];
  decltype(pass.template common<N>(0)) common[K];
  S sum[K][N] = {};
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (column(k) < pass.dim) {
      early_rows[k] = pass.template early<N>(row, column(k));
      common[k] = pass.template common<N>(column(k));
    }
  Id picked[Pass::kLoads];
#pragma unroll
  for (int u = 0; u < Pass::kLoads; ++u) picked[u] = first[u];
  const int length = static_cast<int>(span.length);
  for (int done = 0; done < length;) {
    Vector<T, N> in[Pass::kLoads][K];
#pragma unroll
    for (int u = 0; u < Pass::kLoads; ++u) {
      if (picked[u] == Pass::kNone) continue;
      const T* const from = pass.row_of(picked[u]);
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (column(k) < pass.dim) in[u][k] = load<T, N>(from + column(k));
    }
#pragma unroll
    for (int u = 0; u < Pass::kLoads; ++u) {
      if (picked[u] == Pass::kNone) continue;
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (column(k) < pass.dim) pass.template add<N>(picked[u], column(k), in[u][k], common[k], sum[k]);
    }
    done += Pass::kLoads;
#pragma unroll
    for (int u = 0; u < Pass::kLoads; ++u)
      picked[u] = done + u < length ? pass.pick(span.begin + done + u) : Pass::kNone;
  }
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (column(k) < pass.dim) pass.template finish<N>(row, span.length, column(k), sum[k], early_rows[k]);
}

// A group of lanes sums `rows_per_group` neighboring rows, or, `in_turns`, every n-th row of n groups: where
// long rows follow on each other, one group would sum them one by one. While it sums one, the picks of the
// next and the span of the one after that are on their way: with few picks a row, waiting for them one after
// the other would take longer than the sums.
template <int N, typename Pass>
__global__ void __launch_bounds__(kShortThreads, Pass::kBlocksPerProcessor)
    sum_short_rows(Pass pass, LongRows long_rows, int log_lanes, int rows_per_group, bool in_turns) {
  using Id = typename Pass::Id;
  pass.settle();
  const int lanes = 1 << log_lanes, lane = threadIdx.x & (lanes - 1);
  const int64_t group = (int64_t{blockIdx.x} * kShortThreads + threadIdx.x) >> log_lanes;
  const int64_t apart = in_turns ? int64_t{gridDim.x} * kShortThreads >> log_lanes : 1;
  int64_t row = in_turns ? group : group * rows_per_group;
  const int64_t end = in_turns ? pass.num_rows() : min(row + rows_per_group, pass.num_rows());
  if (row >= end) return;
  const int64_t tile = int64_t{lane} * N, step = int64_t{lanes} * N * kVectors<N>;
  const int64_t longest = in_turns && Pass::kListsLongRows ? kLongRowInTurns : kLongRow;
  Span<typename Pass::Index> span = pass.span(row), next_span{};
  if (row + apart < end) next_span = pass.span(row + apart);
  Id picks[Pass::kLoads];
  first_picks(pass, span, longest, picks);
  for (; row < end; row += apart) {
    Id next_picks[Pass::kLoads];
    first_picks(pass, next_span, longest, next_picks);
    Span<typename Pass::Index> span_after{};
    if (row + 2 * apart < end) span_after = pass.span(row + 2 * apart);
    if (span.length > longest) {
      if (Pass::kListsLongRows && lane == 0) long_rows.rows[atomicAdd(long_rows.count, 1ULL)] = row;
    } else {
      for (int64_t t = tile; t < pass.dim; t += step) sum_tile<N>(pass, row, span, picks, t, lanes);
      pass.pad(row, lane, lanes);
    }
    span = next_span;
    next_span = span_after;
#pragma unroll
    for (int u = 0; u < Pass::kLoads; ++u) picks[u] = next_picks[u];
  }
}

template <int N, typename Pass>
__global__ void __launch_bounds__(kLongThreads) sum_long_rows(Pass pass, LongRows long_rows) {
  using T = typename Pass::In;
  using S = typename Pass::S;
  pass.settle();
  constexpr int kWarps = kLongThreads / 32, kStep = kLongThreads / kSliceLanes;
  __shared__ S partial[kWarps][kSliceLanes][N];
  const int lane = threadIdx.x % kSliceLanes, warp = threadIdx.x / 32;
  const int64_t slices = (pass.dim + kSliceLanes * N - 1) / (kSliceLanes * N);
  const int64_t items = static_cast<int64_t>(*long_rows.count) * slices;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t row = long_rows.rows[item / slices];
    const int64_t column = (item % slices * kSliceLanes + lane) * N;
    const auto span = pass.span(row);
    const int64_t end = span.begin + span.length;
    S sum[N] = {};
    if (column < pass.dim) {
      const auto common = pass.template common<N>(column);
      for (int64_t e = span.begin + threadIdx.x / kSliceLanes; e < end; e += kStep * kLongRowLoads) {
        Vector<T, N> in[kLongRowLoads];
        typename Pass::Id picked[kLongRowLoads];
#pragma unroll
        for (int u = 0; u < kLongRowLoads; ++u)
          picked[u] = e + u * kStep < end ? pass.pick(e + u * kStep) : Pass::kNone;
#pragma unroll
        for (int u = 0; u < kLongRowLoads; ++u)
          if (picked[u] != Pass::kNone) in[u] = load<T, N>(pass.row_of(picked[u]) + column);
#pragma unroll
        for (int u = 0; u < kLongRowLoads; ++u)
          if (picked[u] != Pass::kNone) pass.template add<N>(picked[u], column, in[u], common, sum);
      }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int offset = kSliceLanes; offset < 32; offset *= 2)
        sum[i] += __shfl_xor_sync(0xFFFFFFFFu, sum[i], offset);
    }
    if (threadIdx.x % 32 < kSliceLanes) {
#pragma unroll
      for (int i = 0; i < N; ++i) partial[warp][lane][i] = sum[i];
    }
    __syncthreads();
    if (threadIdx.x < kSliceLanes && item % slices == 0) pass.pad(row, lane, kSliceLanes);
    if (threadIdx.x < kSliceLanes && column < pass.dim) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sum[i] = 0;
        for (int w = 0; w < kWarps; ++w) sum[i] += partial[w][lane][i];
      }
      pass.template finish<N>(row, span.length, column, sum, pass.template early<N>(row, column));
    }
    __syncthreads();
  }
}

}  // namespace loader
