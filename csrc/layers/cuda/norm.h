// Layers over rows that lie in tiles, each of nodes of one type, with weights by type: a layer norm with what
// follows it, its gradient, and sums over the tiles of a type. float32; raw device pointers and a stream in;
// nothing waits for the host.
#pragma once

#include <cstdint>

#include "aggregate/cuda/mean.h"
#include "gpu/stream.h"

namespace loader {

constexpr int64_t kMostNormed = 512;  // columns; they are a multiple of 4

// Which rows have which type: `types` [rows / tile].
struct Tiles {
  const int64_t* types;
  int64_t rows;
  int tile;
};

// residual + f(weight * norm(x + bias) + shift), f is ReLU, then dropout. `weight`, `shift` and `bias` have a
// row for each type; `bias` and `residual` may be null.
struct NormArgs {
  Tiles tiles;
  int64_t dim;
  StridedRows<const float> x, weight, shift, bias;
  float epsilon;
  Activation f;
  const int64_t* key;  // of dropout, read when the kernel runs
};

struct NormForward : NormArgs {
  StridedRows<const float> residual;
  float* out;      // [rows, dim]
  float* moments;  // [rows, 2] mean and inverse deviation of each row, for the gradient; or null
};

struct NormBackward : NormArgs {
  StridedRows<const float> grad;
  const float* moments;
  float* grad_x;  // [rows, dim]
  int parts;      // of a tile, of equal numbers of rows
  float* sums;    // [tiles * parts, 2 or 3, dim] gradients of weight, shift and, if there is one, bias
};

// out[t] = sum of the rows of order[i] for i in begins[t] .. begins[t + 1]: always in the same order.
struct TileSums {
  const float* rows;      // [tiles * parts, width]
  int parts;              // of a tile
  const int64_t* order;   // [tiles]
  const int64_t* begins;  // [types + 1]
  int64_t types, width;   // a multiple of 4
  float* out;             // [types, width]
};

// Threads of the kernels of norm.cuh.
constexpr int kNormThreads = 256, kSumThreads = 256, kSumSlice = 128;

// On a stream of `device`, whose context is the current one; throw as the other launches do.
void launch_norm(const NormForward& args, int device, gpu::Stream stream);
void launch_norm_gradient(const NormBackward& args, int device, gpu::Stream stream);
void launch_tile_sums(const TileSums& args, int device, gpu::Stream stream);

}  // namespace loader
