// The kernel that samples trees. Its name, and how it is launched: tree_launch.h.
#pragma once

#include "launch_memory.cuh"
#include "sampler/cuda/trees.cuh"

namespace loader {

template <int Widest, typename Args>
__global__ void __launch_bounds__(kMostTreeBlock, kTreeBlocks<typename Args::Choice>)
    tree_kernel(const __grid_constant__ Args args) {
  tree_block<Widest>(args, launch_memory());
}

}  // namespace loader
