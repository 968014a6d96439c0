#include "walks/cuda/launch.h"

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"
#include "walks/cuda/walkers_per_warp.h"
#include "walks/second_order.h"
#include "walks/weighted.h"

namespace loader {
namespace {

constexpr int kTileSteps = 16;

LOADER_KERNEL(FirstOrderKernel, "walks/cuda/walk.cuh", "walk_first_order")
LOADER_KERNEL(SecondOrderKernel, "walks/cuda/walk.cuh", "walk_second_order")
LOADER_KERNEL(TransitKernel, "walks/cuda/transit.cuh", "walk_transit")
LOADER_KERNEL(FillFilterKernel, "walks/cuda/edge_filter.cuh", "fill_filter_kernel")
LOADER_KERNEL(NegativesKernel, "walks/cuda/edge_filter.cuh", "negatives_kernel")

}  // namespace

namespace gpu {

template <typename P, typename N>
struct Spelled<WalkLists<P, N>> {
  static constexpr Spelling text = spelling<P, N>("loader::WalkLists");
};
template <typename P, typename N>
struct Spelled<MetapathLists<P, N>> {
  static constexpr Spelling text = spelling<P, N>("loader::MetapathLists");
};
template <>
struct Spelled<UniformProposal> {
  static constexpr Spelling text = spelling("loader::UniformProposal");
};

template <typename N>
struct Spelled<WeightedProposal<N>> {
  static constexpr Spelling text = spelling<N>("loader::WeightedProposal");
};

}  // namespace gpu

namespace {

template <class Law>
constexpr bool kFolds = Law::kSecond && Law::Proposal::kFolds;

template <class Law, class Lists, bool Places, bool Knows = false>
gpu::Kernel& walk_kernel() {
  using Proposal = typename Law::Proposal;
  using Coin = gpu::Bool<Law::kCoin>;
  using Steps = gpu::Int<kTileSteps>;
  if constexpr (Law::kSecond)
    return gpu::kernel<SecondOrderKernel, Lists, Proposal, Coin, gpu::Bool<Places>, gpu::Bool<Knows>,
                       Steps>();
  else
    return gpu::kernel<FirstOrderKernel, Lists, Proposal, Coin, gpu::Bool<Places>, Steps>();
}

// The kernel for these lists.
template <class Law, class Lists, bool Places>
gpu::Kernel& walk_kernel_for(const Law& law, const Lists& lists) {
  if constexpr (kFolds<Law>)
    if (!only_tries(law.rules, lists)) return walk_kernel<Law, Lists, Places, true>();
  return walk_kernel<Law, Lists, Places>();
}

}  // namespace

template <class Law, class Lists>
void walk_on_gpu(const Law& law, const Lists& lists,
                 const WalkOut<typename Lists::Edge, typename Lists::Vertex>& out, const WalkStarts& starts,
                 int device, gpu::Stream stream) {
  using Out = WalkOut<typename Lists::Edge, typename Lists::Vertex>;
  if (out.count == 0) return;
  gpu::Kernel& kernel = out.places ? walk_kernel_for<Law, Lists, true>(law, lists)
                                   : walk_kernel_for<Law, Lists, false>(law, lists);
  WalkStarts from = starts;
  from.together = walkers_together(out.count, Law::kSecond ? kSearchingBlocks : kWalkBlocks, device);
  gpu::launch<Law, Lists, Out, WalkStarts>(kernel, device,
                                           {walk_blocks(out.count, from.together), kWalkThreads, 0, stream},
                                           law, lists, out, from);
}

template <class Law, class Lists>
void step_on_gpu(const Law& law, const Lists& lists,
                 const WalkOut<typename Lists::Edge, typename Lists::Vertex>& out, const WalkStarts& starts,
                 const int64_t* order, uint32_t step, int device, gpu::Stream stream) {
  using Out = WalkOut<typename Lists::Edge, typename Lists::Vertex>;
  if (out.count == 0) return;
  gpu::launch<Law, Lists, Out, WalkStarts, const int64_t*, uint32_t>(
      gpu::kernel<TransitKernel, Lists, typename Law::Proposal, gpu::Bool<Law::kCoin>>(), device,
      {gpu::blocks_for(out.count, kTransitThreads, "walkers"), kTransitThreads, 0, stream}, law, lists, out,
      starts, order, step);
}

template <typename P, typename N>
void fill_filter_on_gpu(const PlainLists<P, N>& lists, int64_t num_nodes, int64_t num_edges,
                        const EdgeFilter& filter, int device, gpu::Stream stream) {
  if (num_edges == 0) return;
  const unsigned blocks = gpu::blocks_for(num_edges, kFilterThreads * kFilterEdges, "edges");
  gpu::launch<PlainLists<P, N>, int64_t, EdgeFilter>(gpu::kernel<FillFilterKernel, P, N>(), device,
                                                     {blocks, kFilterThreads, 0, stream}, lists, num_nodes,
                                                     filter);
}

template <typename N>
void draw_negatives_on_gpu(const Negatives& law, uint64_t first_lane, int64_t walkers, int64_t count, N* out,
                           int device, gpu::Stream stream) {
  if (walkers * count == 0) return;
  const unsigned blocks =
      gpu::blocks_for(walkers * ((count + 3) / 4), kNegativeThreads, "negatives by fours");
  gpu::launch<Negatives, uint64_t, int64_t, int64_t, N*>(gpu::kernel<NegativesKernel, N>(), device,
                                                         {blocks, kNegativeThreads, 0, stream}, law,
                                                         first_lane, walkers, count, out);
}

#define INSTANTIATE_LAW(LISTS, P, N, PROPOSAL, COIN, SECOND)                            \
  template void walk_on_gpu(const WalkLaw<PROPOSAL, COIN, SECOND>&, const LISTS<P, N>&, \
                            const WalkOut<P, N>&, const WalkStarts&, int, gpu::Stream);
#define INSTANTIATE_STEP(P, N, PROPOSAL, COIN)                                                      \
  template void step_on_gpu(const WalkLaw<PROPOSAL, COIN, false>&, const WalkLists<P, N>&,          \
                            const WalkOut<P, N>&, const WalkStarts&, const int64_t*, uint32_t, int, \
                            gpu::Stream);
#define INSTANTIATE_LAWS(P, N, PROPOSAL)                   \
  INSTANTIATE_STEP(P, N, PROPOSAL, false)                  \
  INSTANTIATE_STEP(P, N, PROPOSAL, true)                   \
  INSTANTIATE_LAW(WalkLists, P, N, PROPOSAL, false, false) \
  INSTANTIATE_LAW(WalkLists, P, N, PROPOSAL, true, false)  \
  INSTANTIATE_LAW(WalkLists, P, N, PROPOSAL, false, true)  \
  INSTANTIATE_LAW(WalkLists, P, N, PROPOSAL, true, true)
#define INSTANTIATE(P, N)                                                                             \
  INSTANTIATE_LAWS(P, N, UniformProposal)                                                             \
  INSTANTIATE_LAWS(P, N, WeightedProposal<N>)                                                         \
  INSTANTIATE_LAW(MetapathLists, P, N, UniformProposal, false, false)                                 \
  INSTANTIATE_LAW(MetapathLists, P, N, UniformProposal, true, false)                                  \
  template void fill_filter_on_gpu(const PlainLists<P, N>&, int64_t, int64_t, const EdgeFilter&, int, \
                                   gpu::Stream);

INSTANTIATE(int32_t, int32_t)
INSTANTIATE(int64_t, int32_t)
INSTANTIATE(int64_t, int64_t)
template void draw_negatives_on_gpu(const Negatives&, uint64_t, int64_t, int64_t, int32_t*, int, gpu::Stream);
template void draw_negatives_on_gpu(const Negatives&, uint64_t, int64_t, int64_t, int64_t*, int, gpu::Stream);

namespace {

template <class Law, class Lists>
void add(std::vector<gpu::Kernel*>& all) {
  all.push_back(&walk_kernel<Law, Lists, false>());
  all.push_back(&walk_kernel<Law, Lists, true>());
  if constexpr (kFolds<Law>) {
    all.push_back(&walk_kernel<Law, Lists, false, true>());
    all.push_back(&walk_kernel<Law, Lists, true, true>());
  }
}

template <typename P, typename N, class Proposal>
void add_laws(std::vector<gpu::Kernel*>& all) {
  add<WalkLaw<Proposal, false, false>, WalkLists<P, N>>(all);
  add<WalkLaw<Proposal, true, false>, WalkLists<P, N>>(all);
  add<WalkLaw<Proposal, false, true>, WalkLists<P, N>>(all);
  add<WalkLaw<Proposal, true, true>, WalkLists<P, N>>(all);
  all.push_back(&gpu::kernel<TransitKernel, WalkLists<P, N>, Proposal, gpu::Bool<false>>());
  all.push_back(&gpu::kernel<TransitKernel, WalkLists<P, N>, Proposal, gpu::Bool<true>>());
}

template <typename P, typename N>
void add_all(std::vector<gpu::Kernel*>& all) {
  add_laws<P, N, UniformProposal>(all);
  add_laws<P, N, WeightedProposal<N>>(all);
  add<WalkLaw<UniformProposal, false, false>, MetapathLists<P, N>>(all);
  add<WalkLaw<UniformProposal, true, false>, MetapathLists<P, N>>(all);
  all.push_back(&gpu::kernel<FillFilterKernel, P, N>());
}

}  // namespace

std::vector<gpu::Kernel*> walk_kernels() {
  std::vector<gpu::Kernel*> all{&gpu::kernel<NegativesKernel, int32_t>(),
                                &gpu::kernel<NegativesKernel, int64_t>()};
  add_all<int32_t, int32_t>(all);
  add_all<int64_t, int32_t>(all);
  add_all<int64_t, int64_t>(all);
  return all;
}

}  // namespace loader
