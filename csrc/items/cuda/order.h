// The items at some positions of an epoch's order, on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "items/permutation.h"

namespace loader {

// out[i] = the item at position runs.at(i), for 0 <= i < runs.count; `out` is device memory.
cudaError_t launch_items_at(const Permutation& order, const Runs& runs, int64_t* out, cudaStream_t stream);

}  // namespace loader
