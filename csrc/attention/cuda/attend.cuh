// The kernels of attend.h. A warp has a row, and four heads of it: its lanes have vectors of 16 bytes of the
// rows of x. These are read twice, the second time from a cache.
#pragma once

#include "aggregate/cuda/vectors.cuh"
#include "attention/cuda/attend.h"

namespace loader {

constexpr unsigned kWholeWarp = 0xFFFFFFFFu;
constexpr float kLowest = -3.402823466e38f;
constexpr int kAttendWarps = kAttendThreads / 32;

template <typename T>
constexpr int kLaneVector = 16 / sizeof(T);

template <typename T, int N>
__device__ __forceinline__ void add_scaled(float factor, const Vector<T, N>& in, float (&sum)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] += factor * widen(in.v[i]);
}

// Products of some entries' rows of x, from entry e on, with a vector for each of `heads` heads: all lanes
// get them.
template <typename T, typename U>
__device__ __forceinline__ void products(const AttendedRows<T>& rows, int64_t e, int64_t end, const U* with,
                                         int64_t apart, int heads,
                                         float (&found)[kEntriesAtOnce][kHeadsAtOnce]) {
  constexpr int N = kLaneVector<T>;
  const T* from[kEntriesAtOnce];
#pragma unroll
  for (int u = 0; u < kEntriesAtOnce; ++u) {
    from[u] = e + u < end ? rows.x.data + rows.entries[e + u] * rows.x.stride : nullptr;
#pragma unroll
    for (int k = 0; k < kHeadsAtOnce; ++k) found[u][k] = 0;
  }
  for (int64_t column = threadIdx.x % 32 * N; column < rows.dim; column += 32 * N) {
    Vector<T, N> in[kEntriesAtOnce];
#pragma unroll
    for (int u = 0; u < kEntriesAtOnce; ++u)
      if (from[u] != nullptr) in[u] = load<T, N>(from[u] + column);
#pragma unroll
    for (int k = 0; k < kHeadsAtOnce; ++k) {
      if (k >= heads) continue;
      const Vector<U, N> vector = load<U, N>(with + k * apart + column);
#pragma unroll
      for (int u = 0; u < kEntriesAtOnce; ++u) {
        if (from[u] == nullptr) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) found[u][k] += widen(in[u].v[i]) * widen(vector.v[i]);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kEntriesAtOnce; ++u)
#pragma unroll
    for (int k = 0; k < kHeadsAtOnce; ++k) found[u][k] = sum_of_warp(found[u][k]);
}

// Over the lanes that have the same head, which is the lane's number modulo 4.
__device__ __forceinline__ float sum_of_head(float x) {
#pragma unroll
  for (int offset = kHeadsAtOnce; offset < 32; offset *= 2) x += __shfl_xor_sync(kWholeWarp, x, offset);
  return x;
}
__device__ __forceinline__ float max_of_head(float x) {
#pragma unroll
  for (int offset = kHeadsAtOnce; offset < 32; offset *= 2)
    x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, offset));
  return x;
}

// What one lane has of an array [entries, heads]: every eighth entry of one head.
template <typename F>
__device__ __forceinline__ void of_entries(float* values, int64_t begin, int64_t end, int heads, int first,
                                           const F& f) {
  const int lane = threadIdx.x % 32, head = first + lane % kHeadsAtOnce;
  if (head >= heads) return;
  for (int64_t e = begin + lane / kHeadsAtOnce; e < end; e += 32 / kHeadsAtOnce)
    f(values[e * heads + head], e);
}

// Writes `found`, and what is to be added to it, to [entries, heads].
__device__ __forceinline__ void write_products(const float (&found)[kEntriesAtOnce][kHeadsAtOnce], int64_t e,
                                               int64_t end, int heads, int first, const float* plus,
                                               float* values) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int u = 0; u < kEntriesAtOnce; ++u)
#pragma unroll
    for (int k = 0; k < kHeadsAtOnce; ++k) {
      if (lane != u * kHeadsAtOnce + k || e + u >= end || first + k >= heads) continue;
      values[(e + u) * heads + first + k] = found[u][k] + (plus == nullptr ? 0.0f : plus[first + k]);
    }
}

template <typename T>
__global__ void __launch_bounds__(kAttendThreads) attend_rows(AttendForward<T> args) {
  constexpr int N = kLaneVector<T>;
  const int lane = threadIdx.x % 32, heads = args.heads, groups = (heads + kHeadsAtOnce - 1) / kHeadsAtOnce;
  const int64_t warps = int64_t{gridDim.x} * kAttendWarps;
  for (int64_t item = int64_t{blockIdx.x} * kAttendWarps + threadIdx.x / 32; item < args.count * groups;
       item += warps) {
    const int64_t i = item / groups, row = args.order[i], begin = args.indptr[row],
                  end = args.indptr[row + 1];
    const int first = static_cast<int>(item % groups) * kHeadsAtOnce, left = min(heads - first, kHeadsAtOnce);
    for (int64_t e = begin; e < end; e += kEntriesAtOnce) {
      float found[kEntriesAtOnce][kHeadsAtOnce];
      products<T, float>(args, e, end, args.source + first * args.dim, args.dim, left, found);
      write_products(found, e, end, heads, first, args.sink + row * heads, args.shares);
    }
    __syncwarp();
    const auto leaky = [&](float x) { return x > 0 ? x : x * args.slope; };
    float top = kLowest, total = 0;
    of_entries(args.shares, begin, end, heads, first, [&](float& x, int64_t) { top = fmaxf(top, leaky(x)); });
    top = max_of_head(top);
    of_entries(args.shares, begin, end, heads, first,
               [&](float& x, int64_t) { total += expf(leaky(x) - top); });
    const float inverse = 1.0f / sum_of_head(total);
    of_entries(args.shares, begin, end, heads, first, [&](float& x, int64_t) {
      const float share = expf(leaky(x) - top) * inverse;
      x = x > 0 ? share : -share;
    });
    __syncwarp();
    T* const out = args.out + args.at[i] + first * args.apart;
    for (int64_t column = int64_t{lane} * N; column < args.dim; column += 32 * N) {
      float sum[kHeadsAtOnce][N] = {};
      for (int64_t e = begin; e < end; e += kEntriesAtOnce) {
        Vector<T, N> in[kEntriesAtOnce];
#pragma unroll
        for (int u = 0; u < kEntriesAtOnce; ++u)
          if (e + u < end) in[u] = load<T, N>(args.x.data + args.entries[e + u] * args.x.stride + column);
#pragma unroll
        for (int u = 0; u < kEntriesAtOnce; ++u) {
          if (e + u >= end) continue;
#pragma unroll
          for (int k = 0; k < kHeadsAtOnce; ++k)
            if (k < left) add_scaled(fabsf(args.shares[(e + u) * heads + first + k]), in[u], sum[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kHeadsAtOnce; ++k)
        if (k < left) store_scaled<T, N>(out + k * args.apart + column, sum[k], 1.0f);
    }
  }
}

// A block has rows of its own, in turns: each of its warps a row, whose scores get their gradients; then its
// threads have columns, of the rows of all its warps.
template <typename T>
__global__ void __launch_bounds__(kAttendThreads) attend_gradient(AttendBackward<T> args) {
  constexpr int N = kLaneVector<T>;
  const int lane = threadIdx.x % 32, heads = args.heads, groups = (heads + kHeadsAtOnce - 1) / kHeadsAtOnce;
  const int64_t part = blockIdx.x / groups, dim = args.dim;
  const int first = static_cast<int>(blockIdx.x % groups) * kHeadsAtOnce,
            left = min(heads - first, kHeadsAtOnce);
  float* const of_part = args.source + (part * heads + first) * dim;
  const bool one_tile = dim <= kAttendThreads * N;  // then its sums stay in registers
  float sum[kHeadsAtOnce][N] = {};
  for (int64_t turn = part * kAttendWarps; turn < args.count; turn += args.parts * kAttendWarps) {
    const int64_t i = turn + threadIdx.x / 32;
    if (i < args.count) {
      const int64_t row = args.order[i], begin = args.indptr[row], end = args.indptr[row + 1];
      for (int64_t e = begin; e < end; e += kEntriesAtOnce) {
        float found[kEntriesAtOnce][kHeadsAtOnce];
        products<T, T>(args, e, end, args.grad + args.at[i] + first * args.apart, args.apart, left, found);
        write_products(found, e, end, heads, first, nullptr, args.scores);
      }
      __syncwarp();
      const int head = first + lane % kHeadsAtOnce;
      float mean = 0, total = 0;
      of_entries(args.scores, begin, end, heads, first,
                 [&](float& x, int64_t e) { mean += fabsf(args.shares[e * heads + head]) * x; });
      mean = sum_of_head(mean);
      of_entries(args.scores, begin, end, heads, first, [&](float& x, int64_t e) {
        const float share = args.shares[e * heads + head];
        const bool above = (__float_as_uint(share) & 0x80000000u) == 0;
        x = fabsf(share) * (x - mean) * (above ? 1.0f : args.slope);
        total += x;
      });
      total = sum_of_head(total);
      if (lane < left) args.sink[row * heads + head] = total;
    }
    __syncthreads();  // a warp may go on to its next row before others are done with the columns of these
    const int64_t turn_end = min(turn + kAttendWarps, args.count);
    for (int64_t column = int64_t{threadIdx.x} * N; column < dim; column += kAttendThreads * N) {
      if (!one_tile) {
#pragma unroll
        for (int k = 0; k < kHeadsAtOnce; ++k) {
          if (k >= left) continue;
          Vector<float, N> before{};
          if (turn != part * kAttendWarps) before = load<float, N>(of_part + k * dim + column);
#pragma unroll
          for (int j = 0; j < N; ++j) sum[k][j] = before.v[j];
        }
      }
      for (int64_t r = turn; r < turn_end; ++r) {
        const int64_t row = args.order[r], end = args.indptr[row + 1];
        for (int64_t e = args.indptr[row]; e < end; ++e) {
          const Vector<T, N> in = load<T, N>(args.x.data + args.entries[e] * args.x.stride + column);
#pragma unroll
          for (int k = 0; k < kHeadsAtOnce; ++k)
            if (k < left) add_scaled(args.scores[e * heads + first + k], in, sum[k]);
        }
      }
      if (one_tile) continue;
#pragma unroll
      for (int k = 0; k < kHeadsAtOnce; ++k)
        if (k < left) store_scaled<float, N>(of_part + k * dim + column, sum[k], 1.0f);
    }
  }
  const int64_t column = int64_t{threadIdx.x} * N;
  if (!one_tile || column >= dim) return;
#pragma unroll
  for (int k = 0; k < kHeadsAtOnce; ++k)
    if (k < left) store_scaled<float, N>(of_part + k * dim + column, sum[k], 1.0f);
}

// Adds entries [begin, end) of `sorted` to a vector of the gradient of their source. Each lane looks up one
// of 32 entries, which all lanes then read.
template <typename T>
__device__ __forceinline__ void add_entries(const AttendSources<T>& args, int64_t begin, int64_t end,
                                            int64_t column, float (&sum)[kLaneVector<T>]) {
  constexpr int N = kLaneVector<T>;
  const int64_t mine = begin + threadIdx.x % 32;
  const int32_t limit = *args.limit;
  int32_t entry = mine < end ? args.sorted[mine] : limit, relation = 0;
  int64_t at = 0, apart = 0;
  if (entry < limit) {
    const int32_t row = args.row_of[entry];
    relation = args.relation[row];
    at = args.at[row];
    apart = args.apart[relation];
  }
  for (int j = 0; j < 32 && begin + j < end; ++j) {
    const int64_t e = __shfl_sync(kWholeWarp, entry, j);
    const int64_t of = __shfl_sync(kWholeWarp, relation, j) * int64_t{args.heads};
    const int64_t from = __shfl_sync(kWholeWarp, at, j), step = __shfl_sync(kWholeWarp, apart, j);
    if (e >= limit || column >= args.dim) continue;
#pragma unroll 4
    for (int k = 0; k < args.heads; ++k) {
      const auto grad = load<T, N>(args.grad + from + k * step + column);
      const auto vector = load<float, N>(args.source + (of + k) * args.dim + column);
      add_scaled(fabsf(args.shares[e * args.heads + k]), grad, sum);
      add_scaled(args.scores[e * args.heads + k], vector, sum);
    }
  }
}

// A warp has a source; those of many entries are left to all warps of the block, which add their sums up.
template <typename T>
__global__ void __launch_bounds__(kAttendThreads) attend_sources(AttendSources<T> args) {
  constexpr int N = kLaneVector<T>, kTile = 32 * N, kMany = 64;
  alignas(16) __shared__ float partial[kAttendWarps][kTile];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t dim = args.dim;
  for (int64_t turn = int64_t{blockIdx.x} * kAttendWarps; turn < args.sources;
       turn += int64_t{gridDim.x} * kAttendWarps) {
    const int64_t source = turn + warp;
    const int64_t begin = source < args.sources ? args.begins[source] : 0;
    const int64_t end = source < args.sources ? args.begins[source + 1] : kMany + 1;
    for (int64_t tile = 0; tile < dim && end - begin <= kMany; tile += kTile) {
      const int64_t column = tile + lane * N;
      float sum[N] = {};
      for (int64_t e = begin; e < end; e += 32) add_entries(args, e, end, column, sum);
      if (column < dim) store_scaled<T, N>(args.out + source * dim + column, sum, 1.0f);
    }
    for (int64_t s = turn; s < min(turn + kAttendWarps, args.sources); ++s) {
      const int64_t from = args.begins[s], to = args.begins[s + 1];
      if (to - from <= kMany) continue;
      for (int64_t tile = 0; tile < dim; tile += kTile) {
        const int64_t column = tile + lane * N;
        float sum[N] = {};
        for (int64_t e = from + warp * 32; e < to; e += kAttendThreads) add_entries(args, e, to, column, sum);
        store_scaled<float, N>(&partial[warp][lane * N], sum, 1.0f);
        __syncthreads();
        if (warp == 0 && column < dim) {
#pragma unroll
          for (int j = 0; j < N; ++j) {
            sum[j] = 0;
            for (int w = 0; w < kAttendWarps; ++w) sum[j] += partial[w][lane * N + j];
          }
          store_scaled<T, N>(args.out + s * dim + column, sum, 1.0f);
        }
        __syncthreads();
      }
    }
  }
}

}  // namespace loader
