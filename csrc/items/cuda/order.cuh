// The items at some positions of an epoch's order, on the GPU.
#pragma once

#include "items/cuda/order.h"

namespace loader {

__global__ void items_at_kernel(Permutation order, Runs runs, int64_t* out) {
  const int64_t i = int64_t{blockIdx.x} * kItemThreads + threadIdx.x;
  if (i < runs.count) out[i] = order(runs.at(i));
}

}  // namespace loader
