// Sums of rows that are picked by index: what the mean and its gradient have in common.
//
// A group of 2^k neighbouring lanes sums one row, each lane up to two vectors of 16 bytes (less where the
// layout is not so well aligned), four picked rows in flight at a time. Rows beyond kLongRow go to a list
// that a second kernel works off, a thread block for each slice of their columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "aggregate/cuda/mean.h"

namespace loader {

constexpr int kShortThreads = 256;
constexpr int kLongThreads = 512;
constexpr int kSliceLanes = 8;  // of a long row: 8 vectors of 16 bytes are one line of the cache
constexpr int kVectorsPerLane = 2;
constexpr int kRowsInFlight = 4;
constexpr int kPhilox2Rounds = 10;

template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T v[N];
};

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T narrow(Sum<T> x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return x;
  }
}

// Philox 2x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): 64 bits, 16 for
// each of four neighbouring columns.
__device__ __forceinline__ uint2 philox2(uint32_t c0, uint32_t c1, uint32_t key) {
#pragma unroll
  for (int round = 0; round < kPhilox2Rounds; ++round, key += 0x9E3779B9u) {
    const uint64_t product = uint64_t{0xD256D193u} * c0;
    c0 = static_cast<uint32_t>(product >> 32) ^ key ^ c1;
    c1 = static_cast<uint32_t>(product);
  }
  return make_uint2(c0, c1);
}

// Which of four columns from 4 * quad on stay, a bit each.
__device__ __forceinline__ uint32_t kept(const Activation& f, int64_t row, int64_t quad) {
  const uint2 words = philox2(static_cast<uint32_t>(row), static_cast<uint32_t>(quad), f.key);
  return ((words.x & 0xFFFFu) >= f.threshold) | ((words.x >> 16) >= f.threshold) << 1 |
         ((words.y & 0xFFFFu) >= f.threshold) << 2 | ((words.y >> 16) >= f.threshold) << 3;
}

// The bits of the N columns from `column` on, which is a multiple of N.
template <int N>
__device__ __forceinline__ uint32_t kept_columns(const Activation& f, int64_t row, int64_t column) {
  if (f.threshold == 0) return 0xFFFFFFFFu;
  if constexpr (N == 8) return kept(f, row, column / 4) | kept(f, row, column / 4 + 1) << 4;
  return kept(f, row, column / 4) >> (column % 4);
}

// Not `x > 0`: what is no number stays so, as in torch.
template <typename S>
__device__ __forceinline__ bool passes(const Activation& f, S x) {
  return !(f.relu && x <= S(0));
}

template <typename T, int N>
__device__ __forceinline__ void activate(const Activation& f, bool identity, int64_t row, int64_t column,
                                         const Vector<T, N>& in, Sum<T> (&out)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = widen(in.v[i]);
  if (identity) return;
  const uint32_t stays = kept_columns<N>(f, row, column);
#pragma unroll
  for (int i = 0; i < N; ++i)
    out[i] = (stays >> i & 1) && passes(f, out[i]) ? out[i] * static_cast<Sum<T>>(f.scale) : Sum<T>(0);
}

template <typename T, int N>
__device__ __forceinline__ Vector<T, N> load(const T* p) {
  return *reinterpret_cast<const Vector<T, N>*>(p);
}

template <typename T, int N, typename S>
__device__ __forceinline__ void store(T* p, const S (&sum)[N], S scale) {
  Vector<T, N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out.v[i] = narrow<T>(sum[i] * scale);
  *reinterpret_cast<Vector<T, N>*>(p) = out;
}

// The rows that are too long for one group: count first, then the rows.
struct LongRows {
  unsigned long long* count;
  int64_t* rows;

  __device__ void add(int64_t row) const { rows[atomicAdd(count, 1ULL)] = row; }
};

struct Span {
  int64_t begin, length;
};

// The mean. A row is a destination, what it picks are sources.
template <typename P, typename I, typename T, typename O>
struct MeanPass {
  using In = T;
  using S = Sum<T>;
  static constexpr bool kListsLongRows = true;

  DeviceBlock<P, I> block;
  Rows<const T> x;
  Rows<O> mean, own;
  Activation f;
  bool identity;
  int64_t dim;

  __device__ int64_t num_rows() const { return block.num_dst; }
  __device__ Span span(int64_t row) const {
    const int64_t begin = block.indptr[row];
    return {begin, static_cast<int64_t>(block.indptr[row + 1]) - begin};
  }
  __device__ int64_t pick(int64_t e) const { return block.indices[e]; }
  __device__ const T* row_of(int64_t picked) const { return x.data + picked * x.stride; }

  template <int N>
  __device__ void add(int64_t picked, int64_t column, const Vector<T, N>& in, S (&sum)[N]) const {
    S value[N];
    activate(f, identity, picked, column, in, value);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += value[i];
  }

  template <int N>
  __device__ void finish(int64_t row, int64_t length, int64_t column, const S (&sum)[N]) const {
    store<O, N, S>(mean.data + row * mean.stride + column, sum, length == 0 ? S(0) : S(1) / S(length));
    if (own.data == nullptr) return;
    S value[N];
    activate(f, identity, row, column, load<T, N>(x.data + row * x.stride + column), value);
    store<O, N, S>(own.data + row * own.stride + column, value, S(1));
  }
};

// The gradient of the mean. A row is a source, what it picks are destinations.
template <typename P, typename I, typename T>
struct GradientPass {
  using In = T;
  using S = Sum<T>;
  static constexpr bool kListsLongRows = false;  // they were listed when the block was transposed

  const P* indptr;  // of the block: how many sources a destination has
  const P* begin;   // [num_src]
  const P* length;  // [num_src]
  const I* destinations;
  int64_t num_src, num_dst;
  Rows<const T> grad_mean, grad_own, x;
  Rows<T> grad_x;
  Activation f;
  bool identity;
  int64_t dim;

  __device__ int64_t num_rows() const { return num_src; }
  __device__ Span span(int64_t row) const { return {begin[row], length[row]}; }
  __device__ int64_t pick(int64_t e) const { return destinations[e]; }
  __device__ const T* row_of(int64_t picked) const { return grad_mean.data + picked * grad_mean.stride; }

  template <int N>
  __device__ void add(int64_t picked, int64_t, const Vector<T, N>& in, S (&sum)[N]) const {
    const S weight = S(1) / S(indptr[picked + 1] - indptr[picked]);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += weight * widen(in.v[i]);
  }

  template <int N>
  __device__ void finish(int64_t row, int64_t, int64_t column, const S (&picked)[N]) const {
    S sum[N];
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = picked[i];
    if (grad_own.data != nullptr && row < num_dst) {
      const auto own = load<T, N>(grad_own.data + row * grad_own.stride + column);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += widen(own.v[i]);
    }
    if (!identity) {
      const uint32_t stays = kept_columns<N>(f, row, column);
      const auto in = load<T, N>(x.data + row * x.stride + column);
#pragma unroll
      for (int i = 0; i < N; ++i)
        sum[i] = (stays >> i & 1) && passes(f, widen(in.v[i])) ? sum[i] * static_cast<S>(f.scale) : S(0);
    }
    store<T, N, S>(grad_x.data + row * grad_x.stride + column, sum, S(1));
  }
};

template <int N, typename Pass>
__global__ void __launch_bounds__(kShortThreads)
    sum_short_rows(Pass pass, LongRows long_rows, int log_lanes) {
  using T = typename Pass::In;
  using S = typename Pass::S;
  const int64_t thread = int64_t{blockIdx.x} * kShortThreads + threadIdx.x;
  const int64_t row = thread >> log_lanes;
  if (row >= pass.num_rows()) return;
  const int lanes = 1 << log_lanes, lane = threadIdx.x & (lanes - 1);
  const Span span = pass.span(row);
  if (span.length > kLongRow) {
    if (Pass::kListsLongRows && lane == 0) long_rows.add(row);
    return;
  }
  const int64_t end = span.begin + span.length;
  for (int64_t tile = int64_t{lane} * N; tile < pass.dim; tile += int64_t{lanes} * N * kVectorsPerLane) {
    S sum[kVectorsPerLane][N] = {};
    int64_t next[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) next[u] = span.begin + u < end ? pass.pick(span.begin + u) : -1;
    for (int64_t e = span.begin; e < end; e += kRowsInFlight) {
      Vector<T, N> in[kRowsInFlight][kVectorsPerLane];
      int64_t picked[kRowsInFlight];
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        picked[u] = next[u];
        if (picked[u] < 0) continue;
        const T* const from = pass.row_of(picked[u]);
#pragma unroll
        for (int k = 0; k < kVectorsPerLane; ++k) {
          const int64_t column = tile + int64_t{k} * lanes * N;
          if (column < pass.dim) in[u][k] = load<T, N>(from + column);
        }
      }
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        const int64_t ahead = e + kRowsInFlight + u;
        next[u] = ahead < end ? pass.pick(ahead) : -1;
      }
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        if (picked[u] < 0) continue;
#pragma unroll
        for (int k = 0; k < kVectorsPerLane; ++k) {
          const int64_t column = tile + int64_t{k} * lanes * N;
          if (column < pass.dim) pass.template add<N>(picked[u], column, in[u][k], sum[k]);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kVectorsPerLane; ++k) {
      const int64_t column = tile + int64_t{k} * lanes * N;
      if (column < pass.dim) pass.template finish<N>(row, span.length, column, sum[k]);
    }
  }
}

template <int N, typename Pass>
__global__ void __launch_bounds__(kLongThreads) sum_long_rows(Pass pass, LongRows long_rows) {
  using T = typename Pass::In;
  using S = typename Pass::S;
  constexpr int kWarps = kLongThreads / 32, kStep = kLongThreads / kSliceLanes;
  __shared__ S partial[kWarps][kSliceLanes][N];
  const int lane = threadIdx.x % kSliceLanes, warp = threadIdx.x / 32;
  const int64_t slices = (pass.dim + kSliceLanes * N - 1) / (kSliceLanes * N);
  const int64_t items = static_cast<int64_t>(*long_rows.count) * slices;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t row = long_rows.rows[item / slices];
    const int64_t column = (item % slices * kSliceLanes + lane) * N;
    const Span span = pass.span(row);
    const int64_t end = span.begin + span.length;
    S sum[N] = {};
    if (column < pass.dim) {
      for (int64_t e = span.begin + threadIdx.x / kSliceLanes; e < end; e += kStep * kRowsInFlight) {
        Vector<T, N> in[kRowsInFlight];
        int64_t picked[kRowsInFlight];
#pragma unroll
        for (int u = 0; u < kRowsInFlight; ++u)
          picked[u] = e + u * kStep < end ? pass.pick(e + u * kStep) : -1;
#pragma unroll
        for (int u = 0; u < kRowsInFlight; ++u)
          if (picked[u] >= 0) in[u] = load<T, N>(pass.row_of(picked[u]) + column);
#pragma unroll
        for (int u = 0; u < kRowsInFlight; ++u)
          if (picked[u] >= 0) pass.template add<N>(picked[u], column, in[u], sum);
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
    if (threadIdx.x < kSliceLanes && column < pass.dim) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sum[i] = 0;
        for (int w = 0; w < kWarps; ++w) sum[i] += partial[w][lane][i];
      }
      pass.template finish<N>(row, span.length, column, sum);
    }
    __syncthreads();
  }
}

// Both kernels; `max_long` bounds the number of long rows, and 0 leaves the second one out.
template <int N, typename Pass>
cudaError_t sum_rows(const Pass& pass, int64_t num_rows, const LongRows& long_rows, int64_t max_long,
                     cudaStream_t stream) {
  if (num_rows == 0 || pass.dim == 0) return cudaSuccess;
  const int64_t vectors = pass.dim / N;
  int log_lanes = 0;
  while (log_lanes < 5 && (int64_t{kVectorsPerLane} << log_lanes) < vectors) ++log_lanes;
  const int64_t rows_per_block = kShortThreads >> log_lanes;
  const int64_t blocks = (num_rows + rows_per_block - 1) / rows_per_block;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  sum_short_rows<N><<<static_cast<unsigned>(blocks), kShortThreads, 0, stream>>>(pass, long_rows, log_lanes);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess || max_long == 0) return error;
  int device = 0, processors = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
      error != cudaSuccess)
    return error;
  const int64_t slices = (vectors + kSliceLanes - 1) / kSliceLanes;
  const int64_t wanted = std::min<int64_t>(max_long * slices, int64_t{processors} * 4);
  sum_long_rows<N><<<static_cast<unsigned>(wanted), kLongThreads, 0, stream>>>(pass, long_rows);
  return cudaGetLastError();
}

// Elements of the widest vector that suits a number of columns and every array it was shown: all of them are
// multiples of it, counted in elements of their own type.
class Alignment {
 public:
  explicit Alignment(int64_t dim) : bits_(static_cast<uint64_t>(dim)) {}

  template <typename T>
  Alignment& of(const Rows<T>& rows) {
    if (rows.data != nullptr)
      bits_ |= reinterpret_cast<uint64_t>(rows.data) / sizeof(T) | static_cast<uint64_t>(rows.stride);
    return *this;
  }

  bool allows(uint64_t elements) const { return bits_ % elements == 0; }

 private:
  uint64_t bits_;
};

// Calls `f` with the width of the vectors, as a constant.
template <typename T, typename F>
cudaError_t with_vectors(const Alignment& alignment, const F& f) {
  constexpr int kWidest = 16 / sizeof(T);
  if (alignment.allows(kWidest)) return f(std::integral_constant<int, kWidest>{});
  if constexpr (kWidest > 2) {
    if (alignment.allows(kWidest / 2)) return f(std::integral_constant<int, kWidest / 2>{});
  }
  return f(std::integral_constant<int, 1>{});
}

}  // namespace loader
