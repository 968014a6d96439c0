// How a warp writes its walks: some steps of all its walkers are put together first, so that it writes whole
// pieces of a row. If each thread wrote each vertex by itself, every write would touch a sector of memory for
// four bytes of it.
#pragma once

#include <cstdint>

#include "walks/cuda/thread_blocks.h"

namespace loader {

// The next kSteps columns of the rows of a warp.
template <typename T, int kSteps>
struct WalkTile {
  T entry[kWarpWalkers][kSteps + 1];  // a column more, so that neither direction meets the same bank

  // Writes columns [0, width) to those of the rows of `out`, which lie `stride` apart; there are `rows` of
  // them.
  __device__ void write(T* out, int64_t stride, int rows, int width, int lane) const {
    // As many turns whatever the rows: with a bound that is known the loop is unrolled, and a step takes 10 %
    // less.
    for (int i = lane; i < kWarpWalkers * kSteps; i += 32) {
      const int row = i / kSteps, column = i % kSteps;
      if (row < rows && column < width) out[row * stride + column] = entry[row][column];
    }
  }
};

// -1 in columns [0, width) of `rows` rows.
template <typename T>
__device__ void write_ends(T* out, int64_t stride, int rows, int64_t width, int lane) {
  for (int row = 0; row < rows; ++row)
    for (int64_t column = lane; column < width; column += 32) out[row * stride + column] = T{-1};
}

}  // namespace loader
