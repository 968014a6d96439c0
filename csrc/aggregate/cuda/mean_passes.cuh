// What the kernels of sum_rows.cuh sum: the mean, and its gradient.
//
// A pass says which rows there are, which rows of the input each of them picks (`span`, `pick`, `row_of`),
// and what is done with them: `add` takes one picked vector and what is `common` to its columns, `finish`
// writes a vector of the result. A kernel calls `settle` first, which looks up what is captured.
#pragma once

#include "aggregate/cuda/activation.cuh"

namespace loader {

template <typename P>
struct Span {
  P begin, length;
};

struct Nothing {};

// The mean. A row is a destination, what it picks are sources.
template <typename P, typename I, typename T, typename O>
struct MeanPass : MeanArgsOf<P, I, T, O> {
  using In = T;
  using Out = O;
  using S = Sum<T>;
  using Index = P;
  using Id = I;
  static constexpr Id kNone = -1;
  static constexpr int kLoads = 4;  // of picked rows, under way at once
  static constexpr int kBlocksPerProcessor = kMeanBlocks;
  static constexpr bool kListsLongRows = true;

  using Args = MeanArgsOf<P, I, T, O>;
  using Args::block;
  using Args::dim;
  using Args::f;
  using Args::identity;
  using Args::mean;
  using Args::nodes;
  using Args::own;
  using Args::padding;
  using Args::rows;
  using Args::x;

  __device__ void settle() {
    if (block.captured == nullptr) return;
    if (block.captured->x != nullptr) {
      x = {static_cast<const T*>(block.captured->x), block.captured->x_stride};
      nodes = static_cast<const I*>(block.captured->nodes);
    }
    f.key = block.captured->key;
    block = settled(block);
  }

  __device__ int64_t num_rows() const { return rows; }
  __device__ Span<P> span(int64_t row) const {
    if (row >= block.num_dst) return {};
    const int64_t list = block.order == nullptr ? row : block.order[row];
    const P begin = block.indptr[list];
    return {begin, static_cast<P>(block.indptr[list + 1] - begin)};
  }
  __device__ Id row_of_source(int64_t source) const {
    return nodes == nullptr ? static_cast<Id>(source) : nodes[source];
  }
  __device__ Id pick(int64_t e) const { return row_of_source(block.indices[e]); }
  __device__ const T* row_of(Id picked) const { return x.data + int64_t{picked} * x.stride; }

  // What all elements of these columns have in common, asked for before any of them: scales, if there is one
  // for each column.
  template <int N>
  __device__ __forceinline__ auto common(int64_t column) const {
    if constexpr (kIsCode<T>) {
      Vector<float, N> scales{};
      if (this->scales.by_row) return scales;
#pragma unroll
      for (int i = 0; i < N; ++i) scales.v[i] = __ldg(this->scales.of + column + i);
      return scales;
    } else {
      return Nothing{};
    }
  }

  // f of elements of row `picked` of x, which are decoded if they are codes.
  template <int N, typename Common>
  __device__ __forceinline__ void activated(Id picked, int64_t drawn, int64_t column, const Vector<T, N>& in,
                                            const Common& common, S (&value)[N]) const {
    if constexpr (kIsCode<T>) {
      Vector<float, N> decoded = common;
      if (this->scales.by_row) {
        const float scale = __ldg(this->scales.of + picked);
#pragma unroll
        for (int i = 0; i < N; ++i) decoded.v[i] = scale;
      }
#pragma unroll
      for (int i = 0; i < N; ++i) decoded.v[i] = scaled(value_of(in.v[i]), decoded.v[i]);
      activate(f, identity, drawn, column, decoded, value);
    } else {
      activate(f, identity, drawn, column, in, value);
    }
  }

  template <int N, typename Common>
  __device__ void add(Id picked, int64_t column, const Vector<T, N>& in, const Common& common,
                      S (&sum)[N]) const {
    S value[N];
    activated<N>(picked, picked, column, in, common, value);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += value[i];
  }

  // What `finish` needs besides the sum, asked for before the sum is taken.
  template <int N>
  struct Early {
    Vector<T, N> own;
  };
  template <int N>
  __device__ Early<N> early(int64_t row, int64_t column) const {
    if (own.data == nullptr || row >= block.num_dst) return {};
    return {load<T, N>(row_of(row_of_source(row)) + column)};
  }

  template <int N>
  __device__ void finish(int64_t row, int64_t length, int64_t column, const S (&sum)[N],
                         const Early<N>& early_rows) const {
    const int64_t to = block.at == nullptr ? row * mean.stride : block.at[row];
    store_scaled<O, N, S>(mean.data + to + column, sum,
                          block.sums    ? S(1)
                          : length == 0 ? S(0)
                                        : S(1) / S(length));
    if (own.data == nullptr) return;
    S value[N];
    // A row beyond the block's own, of zeros, has no source.
    const int64_t drawn = f.threshold == 0 || row >= block.num_dst ? row : row_of_source(row);
    const Id source = kIsCode<T> && row < block.num_dst ? row_of_source(row) : 0;
    activated<N>(source, drawn, column, early_rows.own, common<N>(column), value);
    store_scaled<O, N, S>(own.data + row * own.stride + column, value, S(1));
  }

  // What follows the columns; lane `lane` of `lanes` is told of each row once.
  __device__ void pad(int64_t row, int lane, int lanes) const {
    for (int i = lane; i < padding; i += lanes)
      mean.data[row * mean.stride + dim + i] =
          narrow<O>(i == 0 && row < block.num_dst ? Sum<O>(1) : Sum<O>(0));
  }
};

// The gradient of the mean. A row is a source, what it picks are destinations.
template <typename P, typename I, typename T>
struct GradientPass : GradientArgs<P, I, T> {
  using In = T;
  using S = Sum<T>;
  using Index = P;
  using Id = I;
  static constexpr Id kNone = -1;
  static constexpr int kLoads = 2;  // most sources have one destination
  static constexpr int kBlocksPerProcessor = kGradientBlocks;
  static constexpr bool kListsLongRows = false;  // they were listed when the block was transposed

  using Args = GradientArgs<P, I, T>;
  using Args::begin;
  using Args::captured;
  using Args::destinations;
  using Args::dim;
  using Args::f;
  using Args::grad_mean;
  using Args::grad_own;
  using Args::grad_x;
  using Args::identity;
  using Args::indptr;
  using Args::length;
  using Args::num_dst;
  using Args::num_src;
  using Args::sums;
  using Args::x;

  __device__ void settle() {
    if (captured == nullptr) return;
    indptr = static_cast<const P*>(captured->indptr);
    num_dst = captured->num_dst;
    f.key = captured->key;
  }

  __device__ int64_t num_rows() const { return num_src; }
  __device__ Span<P> span(int64_t row) const { return {begin[row], length[row]}; }
  __device__ Id pick(int64_t e) const { return destinations[e]; }
  __device__ const T* row_of(Id picked) const { return grad_mean.data + int64_t{picked} * grad_mean.stride; }

  template <int N>
  __device__ __forceinline__ Nothing common(int64_t) const {
    return {};
  }

  template <int N>
  __device__ void add(Id picked, int64_t, const Vector<T, N>& in, Nothing, S (&sum)[N]) const {
    const S weight = sums ? S(1) : S(1) / S(indptr[picked + 1] - indptr[picked]);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += weight * widen(in.v[i]);
  }

  template <int N>
  struct Early {
    Vector<T, N> own, in;
  };
  template <int N>
  __device__ Early<N> early(int64_t row, int64_t column) const {
    Early<N> early_rows{};
    if (grad_own.data != nullptr && row < num_dst)
      early_rows.own = load<T, N>(grad_own.data + row * grad_own.stride + column);
    if (!identity && f.relu) early_rows.in = load<T, N>(x.data + row * x.stride + column);
    return early_rows;
  }

  template <int N>
  __device__ void finish(int64_t row, int64_t, int64_t column, const S (&picked)[N],
                         const Early<N>& early_rows) const {
    S sum[N];
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = picked[i];
    if (grad_own.data != nullptr && row < num_dst) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += widen(early_rows.own.v[i]);
    }
    if (!identity) {
      const uint32_t stays = keep_mask<N>(f, row, column);
#pragma unroll
      for (int i = 0; i < N; ++i)
        sum[i] = (stays >> i & 1) && passes(f, widen(early_rows.in.v[i])) ? sum[i] * static_cast<S>(f.scale)
                                                                          : S(0);
    }
    store_scaled<T, N, S>(grad_x.data + row * grad_x.stride + column, sum, S(1));
  }

  __device__ void pad(int64_t, int, int) const {}
};

}  // namespace loader
