// The items at some positions of an epoch's order, on the GPU.
#pragma once

#include "gpu/stream.h"
#include "items/permutation.h"

namespace loader {

constexpr int kItemThreads = 256;  // of a block

// out[i] = the item at position runs.at(i), for 0 <= i < runs.count; `out` is memory of `device`, whose
// context is the current one. Throws std::runtime_error if the launch is refused.
void launch_items_at(const Permutation& order, const Runs& runs, int64_t* out, int device,
                     gpu::Stream stream);

}  // namespace loader
