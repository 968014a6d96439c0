// What all kernels do around the phases of sampling hop by hop.
#pragma once

#include <type_traits>

#include "sampler/cuda/device_pick_weighted.cuh"
#include "sampler/cuda/hash_set_phases.cuh"
#include "sampler/cuda/hopwise.cuh"
#include "sampler/cuda/hopwise_scan.cuh"

namespace loader {

// The phases of sampling hop by hop, with either kind of vertex set.
template <bool Hashed, typename Args>
using PhasesOf = std::conditional_t<
    Hashed, HashedPhases<Args>,
    std::conditional_t<Args::Choice::kCountsByDegree, HopwisePhases<Args>, ScannedPhases<Args>>>;

// Calls `f` with the narrowest number of registers (as a type) that a fanout fits.
template <int Widest, typename F>
__device__ __forceinline__ void with_width(int fanout, const F& f) {
  if (fanout <= 5) return f(std::integral_constant<int, 5>());
  if constexpr (Widest > 5)
    if (fanout <= 10) return f(std::integral_constant<int, 10>());
  if constexpr (Widest > 10)
    if (fanout <= 15) return f(std::integral_constant<int, 15>());
  if constexpr (Widest > 15)
    if (fanout <= 20) return f(std::integral_constant<int, 20>());
  if constexpr (Widest > 20) f(std::integral_constant<int, 32>());
}

// The phases that sampling hop by hop has with either kind of vertex set, in one launch or in several.
// `Phases`: HopwisePhases, HashedPhases or ScannedPhases.

// Whether `assign(hop, ...)` may follow; tells the host of a bad seed. All threads of a block get the same
// answer, also where another block is about to find that the outputs are too small: `assign` has barriers.
template <typename Phases>
__device__ __forceinline__ bool may_assign(const Phases& phases, int hop) {
  const SampleStatus status = phases.status();
  if (!__syncthreads_or(status != SampleStatus::kOk)) return true;
  // Whoever finds a bad weight tells the host by itself.
  if (hop == 0 && status != SampleStatus::kBadWeight && phases.block == 0 && threadIdx.x == 0)
    phases.publish();
  return false;
}

template <typename Phases>
__device__ __forceinline__ void finish_phases(const Phases& phases, bool ok) {
  if (ok)
    phases.finish();
  else
    phases.clean();
  if (phases.args.pad) phases.fill_rest(!ok);
}

// The blocks of a launch are dealt out evenly to its mini-batches. Calls `f` with the sampling of this
// block's mini-batch, a Space; the blocks that are left over do nothing.
template <typename Sampling, typename Args, typename F>
__device__ __forceinline__ void with_own_batch(const Args& args, const F& f) {
  const int blocks = gridDim.x / args.num_batches, slot = blockIdx.x / blocks;
  if (slot < args.num_batches) f(Sampling(args, slot, blockIdx.x % blocks, blocks));
}

}  // namespace loader
