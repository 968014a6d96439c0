// The kernels of the GPU sampler, compiled for the host, and which is which.
#pragma once

#include "device_code.h"
// The stand-in for CUDA comes first.
#include "sampler/cuda/hetero_kernels.cuh"
#include "sampler/cuda/kernels.cuh"
#include "sampler/cuda/launch.h"

namespace loader::gpu {

template <int W, typename Args>
struct Compiled<CooperativeKernel, Int<W>, Args> {
  static constexpr auto* function = cooperative_kernel<W, Args>;
};
template <int W, typename Args>
struct Compiled<PhasesKernel, Int<W>, Args> {
  static constexpr auto* function = phases_kernel<W, Args>;
};
template <int W, typename Args>
struct Compiled<HashedKernel, Int<W>, Args> {
  static constexpr auto* function = hashed_kernel<W, Args>;
};
template <int W, bool H, typename Args>
struct Compiled<HeteroKernel, Int<W>, Bool<H>, Args> {
  static constexpr auto* function = hetero_kernel<W, H, Args>;
};
template <int W, typename Args>
struct Compiled<LinedKernel, Int<W>, Args> {
  static constexpr auto* function = lined_kernel<W, Args>;
};
template <bool H, typename Args>
struct Compiled<StartKernel, Bool<H>, Args> {
  static constexpr auto* function = start_kernel<H, Args>;
};
template <int W, bool H, typename Args>
struct Compiled<PickKernel, Int<W>, Bool<H>, Args> {
  static constexpr auto* function = pick_kernel<W, H, Args>;
};
template <int W, typename Args>
struct Compiled<PlacesKernel, Int<W>, Args> {
  static constexpr auto* function = places_kernel<W, Args>;
};
template <typename P, typename N>
struct Compiled<FetchKernel, P, N> {
  static constexpr auto* function = fetch_kernel<P, N>;
};
template <bool H, typename Args>
struct Compiled<TakeKernel, Bool<H>, Args> {
  static constexpr auto* function = take_kernel<H, Args>;
};
template <typename W, typename Args>
struct Compiled<ScanKernel, W, Args> {
  static constexpr auto* function = scan_kernel<W, Args>;
};
template <bool H, typename Args>
struct Compiled<CountKernel, Bool<H>, Args> {
  static constexpr auto* function = count_kernel<H, Args>;
};
template <bool H, typename Args>
struct Compiled<AssignKernel, Bool<H>, Args> {
  static constexpr auto* function = assign_kernel<H, Args>;
};
template <bool H, typename Args>
struct Compiled<FinishKernel, Bool<H>, Args> {
  static constexpr auto* function = finish_kernel<H, Args>;
};
template <bool H, typename Args>
struct Compiled<GroupKernel, Bool<H>, Args> {
  static constexpr auto* function = group_kernel<H, Args>;
};
template <bool H, typename Args>
struct Compiled<RankKernel, Bool<H>, Args> {
  static constexpr auto* function = rank_kernel<H, Args>;
};

}  // namespace loader::gpu
