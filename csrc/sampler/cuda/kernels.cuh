// The kernels of all schedules. Their names, and how they are launched: launch.h.
#pragma once

#include "launch_memory.cuh"
#include "sampler/cuda/block_programs.cuh"

namespace loader {

template <int Widest, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    cooperative_kernel(const __grid_constant__ Args args) {
  cooperative_block<Widest>(args, launch_memory());
}

template <int Widest, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    phases_kernel(const __grid_constant__ Args args) {
  phases_block<Widest>(args, launch_memory());
}

template <int Widest, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    hashed_kernel(const __grid_constant__ Args args) {
  hashed_block<Widest>(args, launch_memory());
}

template <int Widest, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    lined_kernel(const __grid_constant__ Args args) {
  lined_block<Widest>(args, launch_memory());
}

template <bool Hashed, typename Args>
__global__ void __launch_bounds__(kBlock) start_kernel(const __grid_constant__ Args args) {
  start_block<PhasesOf<Hashed, Args>>(args);
}

template <int Widest, bool Hashed, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    pick_kernel(const __grid_constant__ Args args, int hop) {
  pick_block<Widest, PhasesOf<Hashed, Args>>(args, hop, launch_memory());
}

template <int Widest, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    places_kernel(const __grid_constant__ Args args, int hop) {
  places_block<Widest>(args, hop, launch_memory());
}

template <typename P, typename N>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    fetch_kernel(const __grid_constant__ LineArgs<P, N> args, int hops, int hop) {
  fetch_block(args, hops, hop);
}

template <bool Hashed, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    take_kernel(const __grid_constant__ Args args, int hop) {
  take_block<PhasesOf<Hashed, Args>>(args, hop);
}

template <typename Weights, typename Args>
__global__ void __launch_bounds__(kBlock, kScanBlocksPerMultiprocessor<typename Args::Choice>)
    scan_kernel(const __grid_constant__ Args args, int hop) {
  scan_block<Weights>(args, hop, launch_memory());
}

template <bool Hashed, typename Args>
__global__ void __launch_bounds__(kBlock) count_kernel(const __grid_constant__ Args args, int hop) {
  count_block<PhasesOf<Hashed, Args>>(args, hop);
}

template <bool Hashed, typename Args>
__global__ void __launch_bounds__(kBlock) assign_kernel(const __grid_constant__ Args args, int hop) {
  assign_block<PhasesOf<Hashed, Args>>(args, hop);
}

template <bool Hashed, typename Args>
__global__ void __launch_bounds__(kBlock) finish_kernel(const __grid_constant__ Args args) {
  finish_block<PhasesOf<Hashed, Args>>(args);
}

template <bool Hashed, typename Args>
__global__ void __launch_bounds__(kBlock) group_kernel(const __grid_constant__ Args args, int hop) {
  group_block<PhasesOf<Hashed, Args>>(args, hop, launch_memory());
}

template <bool Hashed, typename Args>
__global__ void __launch_bounds__(kBlock) rank_kernel(const __grid_constant__ Args args, int hop) {
  rank_block<PhasesOf<Hashed, Args>>(args, hop, launch_memory());
}

}  // namespace loader
