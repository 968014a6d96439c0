// The kernels of norm.h. A warp has a row, whose elements stay in its registers.
#pragma once

#include "aggregate/cuda/activation.cuh"
#include "layers/cuda/norm.h"

namespace loader {

// Thread blocks that a multiprocessor shall have room for; with more vectors a lane, registers do not allow
// it.
template <int K>
constexpr int kNormBlocks = K == 1 ? 6 : 1;
template <int K>
constexpr int kNormGradientBlocks = K == 1 ? 4 : 1;

template <int K>
struct RowVectors {
  Vector<float, 4> of[K];
};

__device__ __forceinline__ int64_t column_of(int k) { return (int64_t{k} * 32 + threadIdx.x % 32) * 4; }

template <int K>
__device__ __forceinline__ RowVectors<K> row_vectors(const StridedRows<const float>& rows, int64_t row,
                                                     int64_t dim) {
  RowVectors<K> found{};
  if (rows.data == nullptr) return found;
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (column_of(k) < dim) found.of[k] = load<float, 4>(rows.data + row * rows.stride + column_of(k));
  return found;
}

template <int K>
__device__ __forceinline__ void add_to(RowVectors<K>& to, const RowVectors<K>& other) {
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) to.of[k].v[i] += other.of[k].v[i];
}

__device__ __forceinline__ Activation drawn(const NormArgs& args) {
  Activation f = args.f;
  if (f.threshold != 0) f.key = static_cast<uint32_t>(*args.key);
  return f;
}

template <int K>
__global__ void __launch_bounds__(kNormThreads, kNormBlocks<K>) norm_rows(NormForward args) {
  const Activation f = drawn(args);
  const auto scale = static_cast<float>(f.scale);
  const int64_t dim = args.dim, warps = int64_t{gridDim.x} * kNormThreads / 32;
  for (int64_t row = (int64_t{blockIdx.x} * kNormThreads + threadIdx.x) / 32; row < args.tiles.rows;
       row += warps) {
    RowVectors<K> x = row_vectors<K>(args.x, row, dim);
    const RowVectors<K> residual = row_vectors<K>(args.residual, row, dim);
    const int64_t type =
        args.tiles.types[static_cast<uint32_t>(row) / static_cast<uint32_t>(args.tiles.tile)];
    add_to<K>(x, row_vectors<K>(args.bias, type, dim));
    const RowVectors<K> weight = row_vectors<K>(args.weight, type, dim);
    const RowVectors<K> shift = row_vectors<K>(args.shift, type, dim);
    float sum = 0, squares = 0;
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum += x.of[k].v[i];
    const float mean = sum_of_warp(sum) / static_cast<float>(dim);
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float apart = column_of(k) < dim ? x.of[k].v[i] - mean : 0.0f;
        squares += apart * apart;
      }
    const float inverse = 1.0f / sqrtf(sum_of_warp(squares) / static_cast<float>(dim) + args.epsilon);
    if (args.moments != nullptr && threadIdx.x % 32 < 2)
      args.moments[row * 2 + threadIdx.x % 32] = threadIdx.x % 32 == 0 ? mean : inverse;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (column_of(k) >= dim) continue;
      const uint32_t stays = keep_mask<4>(f, row, column_of(k));
      Vector<float, 4> out;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float y = (x.of[k].v[i] - mean) * inverse * weight.of[k].v[i] + shift.of[k].v[i];
        out.v[i] = ((stays >> i & 1) && passes(f, y) ? y * scale : 0.0f) + residual.of[k].v[i];
      }
      store<float, 4>(args.out + row * dim + column_of(k), out);
    }
  }
}

// The sum over the warps of a block of what each lane has, to `out` [dim].
template <int K, int kWarps>
__device__ __forceinline__ void sum_of_warps(const RowVectors<K>& mine, float (&partial)[kWarps][K * 128],
                                             int64_t dim, float* out) {
#pragma unroll
  for (int k = 0; k < K; ++k) store<float, 4>(&partial[threadIdx.x / 32][column_of(k)], mine.of[k]);
  __syncthreads();
  for (int64_t column = threadIdx.x; column < dim; column += kWarps * 32) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += partial[w][column];
    out[column] = sum;
  }
  __syncthreads();
}

// A block has a part of a tile, so that weights stay in registers and their gradients are summed there.
template <int K>
__global__ void __launch_bounds__(kNormThreads, kNormGradientBlocks<K>) norm_gradient(NormBackward args) {
  constexpr int kWarps = kNormThreads / 32;
  alignas(16) __shared__ float partial[kWarps][K * 128];
  const Activation f = drawn(args);
  const auto scale = static_cast<float>(f.scale);
  const int64_t dim = args.dim, part = blockIdx.x, rows = args.tiles.tile / args.parts;
  const int64_t type = args.tiles.types[part / args.parts];
  const RowVectors<K> weight = row_vectors<K>(args.weight, type, dim);
  const RowVectors<K> shift = row_vectors<K>(args.shift, type, dim);
  const RowVectors<K> bias = row_vectors<K>(args.bias, type, dim);
  RowVectors<K> of_weight{}, of_shift{}, of_bias{};
  const int64_t end = (part + 1) * rows;
  int64_t row = part * rows + threadIdx.x / 32;
  RowVectors<K> next_x{}, next_grad{};
  if (row < end) {
    next_x = row_vectors<K>(args.x, row, dim);
    next_grad = row_vectors<K>(args.grad, row, dim);
  }
  for (; row < end; row += kWarps) {
    RowVectors<K> x = next_x, grad = next_grad;
    const float mean = args.moments[row * 2], inverse = args.moments[row * 2 + 1];
    if (row + kWarps < end) {
      next_x = row_vectors<K>(args.x, row + kWarps, dim);
      next_grad = row_vectors<K>(args.grad, row + kWarps, dim);
    }
    add_to<K>(x, bias);
    float sum = 0, product = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const bool there = column_of(k) < dim;
      const uint32_t stays = there ? keep_mask<4>(f, row, column_of(k)) : 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float normed = there ? (x.of[k].v[i] - mean) * inverse : 0.0f;
        const float y = normed * weight.of[k].v[i] + shift.of[k].v[i];
        const float g = (stays >> i & 1) && passes(f, y) ? grad.of[k].v[i] * scale : 0.0f;
        of_weight.of[k].v[i] += g * normed;
        of_shift.of[k].v[i] += g;
        x.of[k].v[i] = normed;
        grad.of[k].v[i] = g * weight.of[k].v[i];
        sum += grad.of[k].v[i];
        product += grad.of[k].v[i] * normed;
      }
    }
    sum = sum_of_warp(sum) / static_cast<float>(dim);
    product = sum_of_warp(product) / static_cast<float>(dim);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (column_of(k) >= dim) continue;
      Vector<float, 4> out;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out.v[i] = inverse * (grad.of[k].v[i] - sum - x.of[k].v[i] * product);
        of_bias.of[k].v[i] += out.v[i];
      }
      store<float, 4>(args.grad_x + row * dim + column_of(k), out);
    }
  }
  const int count = args.bias.data == nullptr ? 2 : 3;
  float* const sums = args.sums + part * count * dim;
  sum_of_warps<K, kWarps>(of_weight, partial, dim, sums);
  sum_of_warps<K, kWarps>(of_shift, partial, dim, sums + dim);
  if (count == 3) sum_of_warps<K, kWarps>(of_bias, partial, dim, sums + 2 * dim);
}

// A block has 128 columns of a type, of whose parts of tiles each warp sums every eighth.
__global__ void __launch_bounds__(kSumThreads) sum_tiles(TileSums args) {
  constexpr int kWarps = kSumThreads / 32, kLoads = 4;
  alignas(16) __shared__ float partial[kWarps][kSumSlice];
  const int64_t slices = (args.width + kSumSlice - 1) / kSumSlice;
  const int64_t type = blockIdx.x / slices, first = blockIdx.x % slices * kSumSlice;
  const int64_t column = first + column_of(0), end = args.begins[type + 1] * args.parts;
  RowVectors<1> sum{};
  if (column < args.width) {
    const auto row_of = [&](int64_t i) { return args.order[i / args.parts] * args.parts + i % args.parts; };
    for (int64_t i = args.begins[type] * args.parts + threadIdx.x / 32; i < end; i += kWarps * kLoads) {
      RowVectors<1> rows[kLoads]{};
#pragma unroll
      for (int u = 0; u < kLoads; ++u)
        if (i + u * kWarps < end)
          rows[u].of[0] = load<float, 4>(args.rows + row_of(i + u * kWarps) * args.width + column);
#pragma unroll
      for (int u = 0; u < kLoads; ++u) add_to<1>(sum, rows[u]);
    }
  }
  const int64_t left = args.width - first;
  sum_of_warps<1, kWarps>(sum, partial, left < kSumSlice ? left : int64_t{kSumSlice},
                          args.out + type * args.width + first);
}

}  // namespace loader
