// How the GPU's sampler of trees is launched. For the host.
#pragma once

#include <algorithm>

#include "sampler/cuda/launch.h"
#include "sampler/cuda/trees.h"

namespace loader {

namespace gpu {

template <>
struct Spelled<LastChoice> {
  static constexpr Spelling text = spelling("loader::LastChoice");
};
template <typename P, typename N, typename Choice>
struct Spelled<TreeArgs<P, N, Choice>> {
  static constexpr Spelling text = spelling<P, N, Choice>("loader::TreeArgs");
};

}  // namespace gpu

LOADER_KERNEL(TreeKernel, "sampler/cuda/tree_kernels.cuh", "tree_kernel")  // <Int, Args>

// Warps of a block that race at once, as many as there is memory for; by LABOR all pick.
template <typename Args>
int racing_warps(const Args& args, int threads) {
  constexpr int64_t kBytes = 32 * 1024;
  if (!args.choice.races) return threads / 32;
  const int64_t most = kBytes / race_buffer_bytes(args.race_widest);
  return static_cast<int>(std::clamp<int64_t>(most, 1, threads / 32));
}

// Shared memory of a block. Races take the place of the tables, which are not in use then, and so does what
// trees are written by.
template <typename Args>
size_t tree_bytes(const Args& args, int threads) {
  const size_t places =
      args.paths ? 0 : static_cast<size_t>(args.shared_places) + static_cast<size_t>(args.shared_sorted);
  const size_t tables = (sizeof(typename Args::N) + sizeof(uint32_t)) * places;
  const size_t writing = tree_write_bytes(args.hops, args.lists.num_types);
  if constexpr (Args::Choice::kCountsByDegree)
    return std::max(tree_stage_bytes(args.widest, threads) + tables, writing);
  else
    return std::max(
        {tables, writing, static_cast<size_t>(args.racing * race_buffer_bytes(args.race_widest))});
}

// The width of the kernel for fanouts of at most `widest`, see kernel_width.
template <typename Args>
int tree_width(int widest, bool takes_all) {
  constexpr bool kLast = std::is_same_v<typename Args::Choice, LastChoice>;
  if (takes_all || sizeof(typename Args::N) == 8 || widest > (kLast ? 10 : 20)) return kWide;
  return widest > 10 ? 20 : 10;
}

// Launches the sampling of mini-batches, see launch_sample, in at most `blocks` blocks of `threads` threads;
// a block has a tree at a time, so more than there are trees are of no use.
// If there are fewer blocks than mini-batches, several launches take as many of them as there are blocks.
template <typename Args>
int launch_trees(Args args, bool takes_all, int blocks, int threads, int device, gpu::Stream stream) {
  constexpr int kMostPerMultiprocessor = 16;
  constexpr bool kNarrow = sizeof(typename Args::N) == 4;
  constexpr bool kLast = std::is_same_v<typename Args::Choice, LastChoice>;
  constexpr bool kScans = !Args::Choice::kCountsByDegree;
  static_assert(sizeof(Args) <= kMostParameters);
  if constexpr (kScans) args.racing = racing_warps(args, threads);
  const auto launch = [&](gpu::Kernel& kernel) {
    const size_t shared = tree_bytes(args, threads);
    const int resident =
        kernel.resident_blocks(device, threads, shared, kMostPerMultiprocessor, kDeclaredBytes);
    int64_t trees = 1;
    for (int i = 0; i < args.num_batches; ++i) trees = std::max(trees, args.batches[i].num_seeds);
    const auto most =
        static_cast<int>(std::min<int64_t>(std::min(resident, blocks), trees * args.num_batches));
    Args some = args;
    int launches = 0;
    for (int first = 0; first < args.num_batches; first += some.num_batches, ++launches) {
      some.num_batches = std::min(most, args.num_batches - first);
      std::copy_n(args.batches + first, some.num_batches, some.batches);
      if constexpr (kScans) std::copy_n(args.turns + first, some.num_batches, some.turns);
      const auto threads_of = static_cast<unsigned>(threads);
      gpu::launch<Args>(kernel, device, {static_cast<unsigned>(most), threads_of, shared, stream, true},
                        some);
    }
    return launches;
  };
  const int width = tree_width<Args>(args.widest, takes_all);
  if constexpr (kNarrow && !kScans) {
    if (width != kWide) args.widest = 0;
    if (width == 10) return launch(gpu::kernel<TreeKernel, gpu::Int<10>, Args>());
    if constexpr (!kLast)
      if (width == 20) return launch(gpu::kernel<TreeKernel, gpu::Int<20>, Args>());
  }
  return launch(gpu::kernel<TreeKernel, gpu::Int<kWide>, Args>());
}

}  // namespace loader
