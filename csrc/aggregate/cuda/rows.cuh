// Sums of rows that are picked by index: what the mean and its gradient have in common.
//
// A group of 2^k neighbouring lanes sums a row, each lane up to two vectors of 16 bytes (less where the
// layout is not so well aligned), four picked rows in flight at a time. Rows beyond kLongRow go to a list
// that a second kernel works off, a thread block for each slice of their columns.
#pragma once

#include <algorithm>
#include <cstdint>

#include "aggregate/cuda/passes.cuh"

namespace loader {

constexpr int kShortThreads = 256;
constexpr int kLongThreads = 512;
constexpr int kSliceLanes = 8;  // of a long row: 8 vectors of 16 bytes are one line of the cache
constexpr int kMaxRowsPerGroup = 8;
constexpr int kLongRowsInFlight = 4;

// Vectors of N elements that a lane has of each row: 8 elements, 4 where they come one by one.
template <int N>
constexpr int kVectors = N == 1 ? 4 : 8 / N;

// The rows that are too long for one group: count first, then the rows.
struct LongRows {
  unsigned long long* count;
  int64_t* rows;

  __device__ void add(int64_t row) const { rows[atomicAdd(count, 1ULL)] = row; }
};

// The first picks of a row, asked for while the row before it is summed.
template <typename Pass>
__device__ __forceinline__ void first_picks(const Pass& pass, const Span<typename Pass::Index>& span,
                                            typename Pass::Id (&picks)[Pass::kInFlight]) {
#pragma unroll
  for (int u = 0; u < Pass::kInFlight; ++u)
    picks[u] = u < span.length && span.length <= kLongRow ? pass.pick(span.begin + u) : Pass::kNone;
}

// The columns of one row that belong to this lane, from `tile` on.
template <int N, typename Pass>
__device__ __forceinline__ void sum_tile(const Pass& pass, int64_t row,
                                         const Span<typename Pass::Index>& span,
                                         const typename Pass::Id (&first)[Pass::kInFlight], int64_t tile,
                                         int lanes) {
  using T = typename Pass::In;
  using S = typename Pass::S;
  using Id = typename Pass::Id;
  constexpr int K = kVectors<N>;
  const auto column = [&](int k) { return tile + int64_t{k} * lanes * N; };
  typename Pass::template Early<N> early_rows[K];
  S sum[K][N] = {};
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (column(k) < pass.dim) early_rows[k] = pass.template early<N>(row, column(k));
  Id picked[Pass::kInFlight];
#pragma unroll
  for (int u = 0; u < Pass::kInFlight; ++u) picked[u] = first[u];
  const int length = static_cast<int>(span.length);
  for (int done = 0; done < length;) {
    Vector<T, N> in[Pass::kInFlight][K];
#pragma unroll
    for (int u = 0; u < Pass::kInFlight; ++u) {
      if (picked[u] == Pass::kNone) continue;
      const T* const from = pass.row_of(picked[u]);
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (column(k) < pass.dim) in[u][k] = load<T, N>(from + column(k));
    }
#pragma unroll
    for (int u = 0; u < Pass::kInFlight; ++u) {
      if (picked[u] == Pass::kNone) continue;
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (column(k) < pass.dim) pass.template add<N>(picked[u], column(k), in[u][k], sum[k]);
    }
    done += Pass::kInFlight;
#pragma unroll
    for (int u = 0; u < Pass::kInFlight; ++u)
      picked[u] = done + u < length ? pass.pick(span.begin + done + u) : Pass::kNone;
  }
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (column(k) < pass.dim) pass.template finish<N>(row, span.length, column(k), sum[k], early_rows[k]);
}

// A group of lanes sums `rows_per_group` neighbouring rows. While it sums one, the picks of the next and the
// span of the one after that are on their way: with few picks a row, waiting for them one after the other
// would take longer than the sums. A pass with more picks does better with the registers (kFetchesAhead
// false: one row a group).
template <int N, typename Pass>
__global__ void __launch_bounds__(kShortThreads, Pass::kBlocksPerProcessor)
    sum_short_rows(Pass pass, LongRows long_rows, int log_lanes, int rows_per_group) {
  using Id = typename Pass::Id;
  pass.settle();
  const int lanes = 1 << log_lanes, lane = threadIdx.x & (lanes - 1);
  const int64_t group = (int64_t{blockIdx.x} * kShortThreads + threadIdx.x) >> log_lanes;
  int64_t row = group * rows_per_group;
  const int64_t end = min(row + rows_per_group, pass.num_rows());
  if (row >= end) return;
  const int64_t tile = int64_t{lane} * N, step = int64_t{lanes} * N * kVectors<N>;
  Span<typename Pass::Index> span = pass.span(row), next_span{};
  if (row + 1 < end) next_span = pass.span(row + 1);
  Id picks[Pass::kInFlight];
  first_picks(pass, span, picks);
  for (; row < end; ++row) {
    Id next_picks[Pass::kInFlight];
    first_picks(pass, next_span, next_picks);
    Span<typename Pass::Index> span_after{};
    if (row + 2 < end) span_after = pass.span(row + 2);
    if (span.length > kLongRow) {
      if (Pass::kListsLongRows && lane == 0) long_rows.add(row);
    } else {
      for (int64_t t = tile; t < pass.dim; t += step) sum_tile<N>(pass, row, span, picks, t, lanes);
      pass.pad(row, lane, lanes);
    }
    span = next_span;
    next_span = span_after;
#pragma unroll
    for (int u = 0; u < Pass::kInFlight; ++u) picks[u] = next_picks[u];
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
      for (int64_t e = span.begin + threadIdx.x / kSliceLanes; e < end; e += kStep * kLongRowsInFlight) {
        Vector<T, N> in[kLongRowsInFlight];
        typename Pass::Id picked[kLongRowsInFlight];
#pragma unroll
        for (int u = 0; u < kLongRowsInFlight; ++u)
          picked[u] = e + u * kStep < end ? pass.pick(e + u * kStep) : Pass::kNone;
#pragma unroll
        for (int u = 0; u < kLongRowsInFlight; ++u)
          if (picked[u] != Pass::kNone) in[u] = load<T, N>(pass.row_of(picked[u]) + column);
#pragma unroll
        for (int u = 0; u < kLongRowsInFlight; ++u)
          if (picked[u] != Pass::kNone) pass.template add<N>(picked[u], column, in[u], sum);
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

// Both kernels; `max_long` bounds the number of long rows, and 0 leaves the second one out.
template <int N, typename Pass>
cudaError_t sum_rows(const Pass& pass, int64_t num_rows, const LongRows& long_rows, int64_t max_long,
                     cudaStream_t stream) {
  if (num_rows == 0 || pass.dim == 0) return cudaSuccess;
  int device = 0, processors = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
      error != cudaSuccess)
    return error;
  const int64_t vectors = pass.dim / N;
  int log_lanes = 0;
  while (log_lanes < 5 && (int64_t{kVectors<N>} << log_lanes) < vectors) ++log_lanes;
  // As many rows in a row as leave every processor twice the groups that it can hold at a time.
  const int64_t groups_per_block = kShortThreads >> log_lanes;
  const int64_t plenty = groups_per_block * Pass::kBlocksPerProcessor * processors * 2;
  const int64_t rows_per_group = std::clamp<int64_t>(num_rows / plenty, 1, kMaxRowsPerGroup);
  const int64_t rows_per_block = groups_per_block * rows_per_group;
  const int64_t blocks = (num_rows + rows_per_block - 1) / rows_per_block;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  sum_short_rows<N><<<static_cast<unsigned>(blocks), kShortThreads, 0, stream>>>(
      pass, long_rows, log_lanes, static_cast<int>(rows_per_group));
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess || max_long == 0) return error;
  const int64_t slices = (vectors + kSliceLanes - 1) / kSliceLanes;
  const int64_t wanted = std::min<int64_t>(max_long * slices, int64_t{processors} * 4);
  sum_long_rows<N><<<static_cast<unsigned>(wanted), kLongThreads, 0, stream>>>(pass, long_rows);
  return cudaGetLastError();
}

}  // namespace loader
