// Sums of rows that are picked by index: what the mean and its gradient have in common.
//
// A group of 2^k neighbouring lanes sums a row, each lane up to two vectors of 16 bytes (less where the
// layout is not so well aligned), four picked rows in flight at a time. Rows beyond kLongRow go to a list
// that a second kernel works off, a thread block for each slice of their columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "aggregate/cuda/mean.h"

namespace loader {

constexpr int kShortThreads = 256;
constexpr int kLongThreads = 512;
constexpr int kSliceLanes = 8;   // of a long row: 8 vectors of 16 bytes are one line of the cache
constexpr int kShortBlocks = 3;  // a processor
constexpr int kMaxRowsPerGroup = 8;
constexpr int kLongRowsInFlight = 4;
constexpr int kPhilox2Rounds = 10;

// Vectors of N elements that a lane has of each row: 8 elements, 4 where they come one by one.
template <int N>
constexpr int kVectors = N == 1 ? 4 : 8 / N;

template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T v[N];
};

template <int kBytes>
struct Word;
template <>
struct Word<2> {
  using type = uint16_t;
};
template <>
struct Word<4> {
  using type = uint32_t;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};

// As one word: the 16-bit types are classes, which the compiler would copy one by one.
template <typename T, int N>
__device__ __forceinline__ Vector<T, N> load(const T* p) {
  const auto word = *reinterpret_cast<const typename Word<sizeof(T) * N>::type*>(p);
  Vector<T, N> out;
  memcpy(&out, &word, sizeof(word));
  return out;
}

template <typename T, int N>
__device__ __forceinline__ void store(T* p, const Vector<T, N>& vector) {
  typename Word<sizeof(T) * N>::type word;
  memcpy(&word, &vector, sizeof(word));
  *reinterpret_cast<decltype(word)*>(p) = word;
}

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

template <typename T, int N, typename S>
__device__ __forceinline__ void store_scaled(T* p, const S (&sum)[N], S scale) {
  Vector<T, N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out.v[i] = narrow<T>(sum[i] * scale);
  store(p, out);
}

// The rows that are too long for one group: count first, then the rows.
struct LongRows {
  unsigned long long* count;
  int64_t* rows;

  __device__ void add(int64_t row) const { rows[atomicAdd(count, 1ULL)] = row; }
};

template <typename P>
struct Span {
  P begin, length;
};

// The mean. A row is a destination, what it picks are sources.
template <typename P, typename I, typename T, typename O>
struct MeanPass {
  using In = T;
  using S = Sum<T>;
  using Index = P;
  using Id = I;
  static constexpr Id kNone = -1;
  static constexpr int kInFlight = 4;  // picked rows
  static constexpr bool kFetchesAhead = false;
  static constexpr bool kListsLongRows = true;

  DeviceBlock<P, I> block;
  Rows<const T> x;
  Rows<O> mean, own;
  int padding;
  Activation f;
  bool identity;
  int64_t dim;

  __device__ int64_t num_rows() const { return block.num_dst; }
  __device__ Span<P> span(int64_t row) const {
    const P begin = block.indptr[row];
    return {begin, static_cast<P>(block.indptr[row + 1] - begin)};
  }
  __device__ Id pick(int64_t e) const { return block.indices[e]; }
  __device__ const T* row_of(Id picked) const { return x.data + int64_t{picked} * x.stride; }

  template <int N>
  __device__ void add(Id picked, int64_t column, const Vector<T, N>& in, S (&sum)[N]) const {
    S value[N];
    activate(f, identity, picked, column, in, value);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += value[i];
  }

  // What `finish` needs besides the sum, asked for before the sum is taken: nothing, for want of registers.
  template <int N>
  struct Early {};
  template <int N>
  __device__ Early<N> early(int64_t, int64_t) const {
    return {};
  }

  template <int N>
  __device__ void finish(int64_t row, int64_t length, int64_t column, const S (&sum)[N],
                         const Early<N>&) const {
    store_scaled<O, N, S>(mean.data + row * mean.stride + column, sum, length == 0 ? S(0) : S(1) / S(length));
    if (own.data == nullptr) return;
    S value[N];
    activate(f, identity, row, column, load<T, N>(x.data + row * x.stride + column), value);
    store_scaled<O, N, S>(own.data + row * own.stride + column, value, S(1));
  }

  // What follows the columns; lane `lane` of `lanes` is told of each row once.
  __device__ void pad(int64_t row, int lane, int lanes) const {
    for (int i = lane; i < padding; i += lanes)
      mean.data[row * mean.stride + dim + i] = narrow<O>(i == 0 ? Sum<O>(1) : Sum<O>(0));
  }
};

// The gradient of the mean. A row is a source, what it picks are destinations.
template <typename P, typename I, typename T>
struct GradientPass {
  using In = T;
  using S = Sum<T>;
  using Index = P;
  using Id = I;
  static constexpr Id kNone = -1;
  static constexpr int kInFlight = 2;  // most sources have one destination
  static constexpr bool kFetchesAhead = true;
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
  __device__ Span<P> span(int64_t row) const { return {begin[row], length[row]}; }
  __device__ Id pick(int64_t e) const { return destinations[e]; }
  __device__ const T* row_of(Id picked) const { return grad_mean.data + int64_t{picked} * grad_mean.stride; }

  template <int N>
  __device__ void add(Id picked, int64_t, const Vector<T, N>& in, S (&sum)[N]) const {
    const S weight = S(1) / S(indptr[picked + 1] - indptr[picked]);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += weight * widen(in.v[i]);
  }

  template <int N>
  struct Early {
    Vector<T, N> own, in;
  };
  template <int N>
  __device__ Early<N> early(int64_t row, int64_t column) const {
    Early<N> ahead{};
    if (grad_own.data != nullptr && row < num_dst)
      ahead.own = load<T, N>(grad_own.data + row * grad_own.stride + column);
    if (!identity && f.relu) ahead.in = load<T, N>(x.data + row * x.stride + column);
    return ahead;
  }

  template <int N>
  __device__ void finish(int64_t row, int64_t, int64_t column, const S (&picked)[N],
                         const Early<N>& ahead) const {
    S sum[N];
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = picked[i];
    if (grad_own.data != nullptr && row < num_dst) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += widen(ahead.own.v[i]);
    }
    if (!identity) {
      const uint32_t stays = kept_columns<N>(f, row, column);
#pragma unroll
      for (int i = 0; i < N; ++i)
        sum[i] =
            (stays >> i & 1) && passes(f, widen(ahead.in.v[i])) ? sum[i] * static_cast<S>(f.scale) : S(0);
    }
    store_scaled<T, N, S>(grad_x.data + row * grad_x.stride + column, sum, S(1));
  }

  __device__ void pad(int64_t, int, int) const {}
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
  typename Pass::template Early<N> ahead[K];
  S sum[K][N] = {};
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (column(k) < pass.dim) ahead[k] = pass.template early<N>(row, column(k));
  Id picked[Pass::kInFlight];
#pragma unroll
  for (int u = 0; u < Pass::kInFlight; ++u) picked[u] = first[u];
  if constexpr (!Pass::kFetchesAhead) first_picks(pass, span, picked);
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
    Id next[Pass::kInFlight];
    const auto pick_next = [&] {
#pragma unroll
      for (int u = 0; u < Pass::kInFlight; ++u) {
        const int at = done + Pass::kInFlight + u;
        next[u] = at < length ? pass.pick(span.begin + at) : Pass::kNone;
      }
    };
    if constexpr (!Pass::kFetchesAhead) pick_next();  // on their way during the sum; registers permitting
#pragma unroll
    for (int u = 0; u < Pass::kInFlight; ++u) {
      if (picked[u] == Pass::kNone) continue;
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (column(k) < pass.dim) pass.template add<N>(picked[u], column(k), in[u][k], sum[k]);
    }
    if constexpr (Pass::kFetchesAhead) pick_next();
    done += Pass::kInFlight;
#pragma unroll
    for (int u = 0; u < Pass::kInFlight; ++u) picked[u] = next[u];
  }
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (column(k) < pass.dim) pass.template finish<N>(row, span.length, column(k), sum[k], ahead[k]);
}

// A group of lanes sums `rows_per_group` neighbouring rows. While it sums one, the picks of the next and the
// span of the one after that are on their way: with few picks a row, waiting for them one after the other
// would take longer than the sums.
template <int N, typename Pass>
__global__ void __launch_bounds__(kShortThreads, kShortBlocks)
    sum_short_rows(Pass pass, LongRows long_rows, int log_lanes, int rows_per_group) {
  using Id = typename Pass::Id;
  const int lanes = 1 << log_lanes, lane = threadIdx.x & (lanes - 1);
  const int64_t group = (int64_t{blockIdx.x} * kShortThreads + threadIdx.x) >> log_lanes;
  int64_t row = group * rows_per_group;
  if (row >= pass.num_rows()) return;
  const int64_t end = Pass::kFetchesAhead ? min(row + rows_per_group, pass.num_rows()) : row + 1;
  const int64_t tile = int64_t{lane} * N, step = int64_t{lanes} * N * kVectors<N>;
  Span<typename Pass::Index> span = pass.span(row), next_span{};
  if (row + 1 < end) next_span = pass.span(row + 1);
  Id picks[Pass::kInFlight] = {};
  if constexpr (Pass::kFetchesAhead) first_picks(pass, span, picks);
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
  const int64_t plenty = groups_per_block * kShortBlocks * processors * 2;
  const int64_t rows_per_group =
      Pass::kFetchesAhead ? std::clamp<int64_t>(num_rows / plenty, 1, kMaxRowsPerGroup) : 1;
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
