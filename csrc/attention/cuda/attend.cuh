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

// The sum over all lanes of the value that each of them has for this one: lane i gets that of values[i]. In
// each step a lane gives half of its sums to another one.
template <int kHalf = 16>
__device__ __forceinline__ float sum_for_each_lane(float (&values)[32]) {
  const bool above = threadIdx.x & kHalf;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float given = above ? values[i] : values[i + kHalf];
    values[i] = (above ? values[i + kHalf] : values[i]) + __shfl_xor_sync(kWholeWarp, given, kHalf);
  }
  if constexpr (kHalf > 1) return sum_for_each_lane<kHalf / 2>(values);
  return values[0];
}

// A row of the list of a relation, which `order` names.
struct AttendedRow {
  int64_t row, begin, end;

  template <typename T>
  __device__ static AttendedRow of(const AttendedRows<T>& rows, int64_t i) {
    if (i >= rows.count) return {0, 0, 0};
    const int64_t row = rows.order[i];
    return {row, rows.indptr[row], rows.indptr[row + 1]};
  }
};

// Some entries of a row, from entry `first` on.
template <typename T>
struct SomeEntries {
  StridedRows<const T> x;
  int32_t places[kEntriesAtOnce];  // their rows of x
  int32_t mine;                    // the row of x of entry `lane`
  int count;

  __device__ SomeEntries(const AttendedRows<T>& rows, int64_t first, int64_t end)
      : x(rows.x), count(static_cast<int>(min(end - first, int64_t{kEntriesAtOnce}))) {
    const int lane = threadIdx.x % 32;
    mine = lane < count ? rows.entries[first + lane] : 0;
#pragma unroll
    for (int u = 0; u < kEntriesAtOnce; ++u) places[u] = __shfl_sync(kWholeWarp, mine, u);
  }

  // Zeros for those that are not there.
  template <int kMost = kEntriesAtOnce>
  __device__ __forceinline__ void read(int64_t column, Vector<T, kLaneVector<T>> (&in)[kMost]) const {
#pragma unroll
    for (int u = 0; u < kMost; ++u) {
      in[u] = {};
      if (u < count) in[u] = load<T, kLaneVector<T>>(x.data + places[u] * x.stride + column);
    }
  }
};

// Adds the products of up to kMost entries' rows of x with a vector for each of `heads` heads, in the columns
// of this lane, to found[4 u + k], of entry u and head k.
template <int kMost, typename T, typename U>
__device__ __forceinline__ void add_products(const SomeEntries<T>& entries, int64_t dim, const U* with,
                                             int64_t apart, int heads, float (&found)[32]) {
  constexpr int N = kLaneVector<T>;
  for (int64_t column = threadIdx.x % 32 * N; column < dim; column += 32 * N) {
    Vector<T, N> in[kMost];
    entries.template read<kMost>(column, in);
    Vector<U, N> vectors[kHeadsAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kHeadsAtOnce; ++k)
      if (k < heads) vectors[k] = load<U, N>(with + k * apart + column);
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int u = 0; u < kMost; ++u) {
        const float x = widen(in[u].v[i]);
#pragma unroll
        for (int k = 0; k < kHeadsAtOnce; ++k) found[u * kHeadsAtOnce + k] += x * widen(vectors[k].v[i]);
      }
  }
}

// The whole products: lane 4 u + k gets that of entry u and head k.
template <typename T, typename U>
__device__ __forceinline__ float products(const SomeEntries<T>& entries, int64_t dim, const U* with,
                                          int64_t apart, int heads) {
  static_assert(kEntriesAtOnce * kHeadsAtOnce == 32);
  float found[32] = {};
  if (entries.count <= 2)
    add_products<2>(entries, dim, with, apart, heads, found);
  else if (entries.count <= 5)
    add_products<5>(entries, dim, with, apart, heads, found);
  else
    add_products<kEntriesAtOnce>(entries, dim, with, apart, heads, found);
  return sum_for_each_lane(found);
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

// What a lane has of an array [entries, heads]: every eighth entry of a row, and one head. The first of these
// values stays in a register, in which most rows end; the others are in the array.
struct LaneValues {
  float* array;
  int64_t begin, end;
  int heads, head;
  float first;

  __device__ LaneValues(float* values, const AttendedRow& of, int all_heads, int first_head)
      : array(values),
        begin(of.begin + threadIdx.x % 32 / kHeadsAtOnce),
        end(of.end),
        heads(all_heads),
        head(first_head + threadIdx.x % kHeadsAtOnce),
        first(0) {
    if (head >= heads) end = begin;
  }

  // The value of the entry that this lane has of those from `e` on.
  __device__ float& at(int64_t e) { return array[e * heads + head]; }
  __device__ void set(int64_t e, float value) {
    const int64_t mine = e + threadIdx.x % 32 / kHeadsAtOnce;
    if (mine == begin)
      first = value;
    else if (mine < end)
      at(mine) = value;
  }
  template <class F>
  __device__ __forceinline__ void each(const F& f) {
    if (begin < end) f(first, begin);
#pragma unroll 1
    for (int64_t e = begin + kEntriesAtOnce; e < end; e += kEntriesAtOnce) f(at(e), e);
  }
  __device__ void store() {
    if (begin < end) at(begin) = first;
  }
};

template <typename T>
__global__ void __launch_bounds__(kAttendThreads, 2) attend_rows(AttendForward<T> args) {
  constexpr int N = kLaneVector<T>;
  alignas(16) __shared__ float shares[kAttendWarps][kEntriesAtOnce][kHeadsAtOnce];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, heads = args.heads;
  const int groups = (heads + kHeadsAtOnce - 1) / kHeadsAtOnce;
  const int64_t warps = int64_t{gridDim.x} * kAttendWarps, items = args.count * groups;
  int64_t item = int64_t{blockIdx.x} * kAttendWarps + warp;
  AttendedRow next = AttendedRow::of(args, item / groups);
  for (; item < items; item += warps) {
    const AttendedRow now = next;
    next = AttendedRow::of(args, (item + warps) / groups);  // so that the next turn does not wait for it
    const int first = static_cast<int>(item % groups) * kHeadsAtOnce, left = min(heads - first, kHeadsAtOnce);
    LaneValues mine(args.shares, now, heads, first);
    const float sink = lane % kHeadsAtOnce < left ? args.sink[now.row * heads + mine.head] : 0;
    SomeEntries<T> entries(args, now.begin, now.end);
    for (int64_t e = now.begin; e < now.end; e += kEntriesAtOnce) {
      if (e > now.begin) entries = SomeEntries<T>(args, e, now.end);
      mine.set(e,
               sink + products<T, float>(entries, args.dim, args.source + first * args.dim, args.dim, left));
    }
    const auto leaky = [&](float x) { return x > 0 ? x : x * args.slope; };
    float top = kLowest, total = 0;
    mine.each([&](float& x, int64_t) { top = fmaxf(top, leaky(x)); });
    top = max_of_head(top);
    mine.each([&](float& x, int64_t) { total += expf(leaky(x) - top); });
    const float inverse = 1.0f / sum_of_head(total);
    mine.each([&](float& x, int64_t) {
      const float share = expf(leaky(x) - top) * inverse;
      x = x > 0 ? share : -share;
    });
    mine.store();
    const bool few = now.end - now.begin <= kEntriesAtOnce;
    const auto give = [&](float share) {
      __syncwarp();
      shares[warp][lane / kHeadsAtOnce][lane % kHeadsAtOnce] = fabsf(share);
      __syncwarp();
    };
    if (few) give(mine.first);
    T* const out = args.out + args.at[item / groups] + first * args.apart;
    for (int64_t tile = 0; tile < args.dim; tile += 32 * N) {
      const int64_t column = tile + lane * N;
      float sum[kHeadsAtOnce][N] = {};
      for (int64_t e = now.begin; e < now.end; e += kEntriesAtOnce) {
        if (!few) {
          entries = SomeEntries<T>(args, e, now.end);
          const int64_t at = e + lane / kHeadsAtOnce;
          give(at < mine.end ? mine.at(at) : 0.0f);
        }
        if (column >= args.dim) continue;
        Vector<T, N> in[kEntriesAtOnce];
        entries.read(column, in);
#pragma unroll
        for (int u = 0; u < kEntriesAtOnce; ++u) {
          if (u >= entries.count) continue;
          const auto share = load<float, kHeadsAtOnce>(shares[warp][u]);
#pragma unroll
          for (int k = 0; k < kHeadsAtOnce; ++k) add_scaled(share.v[k], in[u], sum[k]);
        }
      }
      if (column >= args.dim) continue;
#pragma unroll
      for (int k = 0; k < kHeadsAtOnce; ++k)
        if (k < left) store_scaled<T, N>(out + k * args.apart + column, sum[k], 1.0f);
    }
  }
}

// A block has rows of its own, in turns: each of its warps a row, whose scores get their gradients; then its
// threads have columns, of the rows of all its warps. If there are fewer columns than threads, several teams
// of threads have them, and share the rows.
template <typename T>
__global__ void __launch_bounds__(kAttendThreads, 2) attend_gradient(AttendBackward<T> args) {
  constexpr int N = kLaneVector<T>;
  alignas(16) __shared__ float scores[kAttendWarps][kEntriesAtOnce][kHeadsAtOnce];
  alignas(16) __shared__ float sums[kHeadsAtOnce][kAttendThreads][N];
  __shared__ int32_t places[kAttendWarps][kEntriesAtOnce];
  __shared__ AttendedRow row_of[kAttendWarps];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, heads = args.heads;
  const int groups = (heads + kHeadsAtOnce - 1) / kHeadsAtOnce;
  const int64_t part = blockIdx.x / groups, dim = args.dim, stride = args.parts * kAttendWarps;
  const int first = static_cast<int>(blockIdx.x % groups) * kHeadsAtOnce,
            left = min(heads - first, kHeadsAtOnce);
  float* const of_part = args.source + (part * heads + first) * dim;
  const bool one_tile = dim <= kAttendThreads * N;  // then its sums are in shared memory, until the end
  const int threads = one_tile ? static_cast<int>((dim + N - 1) / N) : kAttendThreads;  // of a team
  const int teams = kAttendThreads / threads, team = thread / threads;
  const int64_t own_column = int64_t{thread % threads} * N;
  for (int k = 0; k < kHeadsAtOnce; ++k) store(sums[k][thread], Vector<float, N>{});
  AttendedRow next = AttendedRow::of(args, part * kAttendWarps + warp);
  for (int64_t turn = part * kAttendWarps; turn < args.count; turn += stride) {
    const int64_t i = turn + warp;
    const AttendedRow now = next;
    next = AttendedRow::of(args, i + stride);  // so that the next turn does not wait for it
    if (i < args.count) {
      LaneValues mine(args.scores, now, heads, first);
      const T* const grad = args.grad + args.at[i] + first * args.apart;
      for (int64_t e = now.begin; e < now.end; e += kEntriesAtOnce) {
        const SomeEntries<T> entries(args, e, now.end);
        if (e == now.begin && lane < kEntriesAtOnce) places[warp][lane] = entries.mine;
        mine.set(e, products<T, T>(entries, dim, grad, args.apart, left));
      }
      float mean = 0, total = 0;
      mine.each([&](float& x, int64_t e) { mean += fabsf(args.shares[e * heads + mine.head]) * x; });
      mean = sum_of_head(mean);
      mine.each([&](float& x, int64_t e) {
        const float share = args.shares[e * heads + mine.head];
        const bool above = (__float_as_uint(share) & 0x80000000u) == 0;
        x = fabsf(share) * (x - mean) * (above ? 1.0f : args.slope);
        total += x;
      });
      mine.store();
      total = sum_of_head(total);
      if (lane < left) args.sink[now.row * heads + mine.head] = total;
      scores[warp][lane / kHeadsAtOnce][lane % kHeadsAtOnce] = mine.first;
    }
    if (lane == 0) row_of[warp] = now;
    __syncthreads();
    for (int64_t column = own_column; column < dim && team < teams; column += kAttendThreads * N) {
      const auto place = [&](int k) { return one_tile ? sums[k][thread] : of_part + k * dim + column; };
      float sum[kHeadsAtOnce][N] = {};
      if (one_tile || turn != part * kAttendWarps)
#pragma unroll
        for (int k = 0; k < kHeadsAtOnce; ++k)
          if (k < left) add_scaled(1.0f, load<float, N>(place(k)), sum[k]);
      for (int w = team; w < kAttendWarps; w += teams) {
        const AttendedRow row = row_of[w];
        Vector<T, N> in[kEntriesAtOnce];
#pragma unroll
        for (int u = 0; u < kEntriesAtOnce; ++u)
          if (row.begin + u < row.end)
            in[u] = load<T, N>(args.x.data + places[w][u] * args.x.stride + column);
#pragma unroll
        for (int u = 0; u < kEntriesAtOnce; ++u) {
          if (row.begin + u >= row.end) continue;
          const auto score = load<float, kHeadsAtOnce>(scores[w][u]);
#pragma unroll
          for (int k = 0; k < kHeadsAtOnce; ++k) add_scaled(score.v[k], in[u], sum[k]);
        }
#pragma unroll 1
        for (int64_t e = row.begin + kEntriesAtOnce; e < row.end; ++e) {
          const auto more = load<T, N>(args.x.data + args.entries[e] * args.x.stride + column);
#pragma unroll
          for (int k = 0; k < kHeadsAtOnce; ++k)
            if (k < left) add_scaled(args.scores[e * heads + first + k], more, sum[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kHeadsAtOnce; ++k)
        if (k < left) store_scaled<float, N>(place(k), sum[k], 1.0f);
    }
    __syncthreads();  // what is in shared memory is written again
  }
  if (!one_tile || team != 0) return;
  for (int k = 0; k < left; ++k) {
    float sum[N] = {};
    for (int t = 0; t < teams; ++t) add_scaled(1.0f, load<float, N>(sums[k][thread + t * threads]), sum);
    store_scaled<float, N>(of_part + k * dim + own_column, sum, 1.0f);
  }
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
