// The kernel of lists by vertex and relation. Its name, and how it is launched: launch.h.
#pragma once

#include "launch_memory.cuh"
#include "sampler/cuda/hetero.cuh"

namespace loader {

template <int Widest, bool Hashed, typename Args>
__global__ void __launch_bounds__(kBlock, kHeteroBlocksPerMultiprocessor<Widest, typename Args::Choice>)
    hetero_kernel(const __grid_constant__ Args args) {
  hetero_block<Widest, HeteroPhases<PhasesOf<Hashed, Args>>>(args, launch_memory());
}

}  // namespace loader
