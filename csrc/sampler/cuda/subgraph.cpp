#include "sampler/cuda/subgraph.h"

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"

namespace loader {
namespace {

#define LOADER_SUBGRAPH_KERNEL(TAG, NAME) LOADER_KERNEL(TAG, "sampler/cuda/subgraph.cuh", NAME)
LOADER_SUBGRAPH_KERNEL(StartSubgraphKernel, "start_subgraph_kernel")
LOADER_SUBGRAPH_KERNEL(CountEdgesKernel, "count_edges_kernel")
LOADER_SUBGRAPH_KERNEL(TakeEdgesKernel, "take_edges_kernel")
LOADER_SUBGRAPH_KERNEL(CountNewKernel, "count_new_kernel")
LOADER_SUBGRAPH_KERNEL(CountBeforeKernel, "count_before_kernel")
LOADER_SUBGRAPH_KERNEL(NumberNewKernel, "number_new_kernel")
LOADER_SUBGRAPH_KERNEL(FinishSubgraphKernel, "finish_subgraph_kernel")
#undef LOADER_SUBGRAPH_KERNEL

template <typename P, typename N>
void add_kernels(std::vector<gpu::Kernel*>& all) {
  for (gpu::Kernel* const kernel :
       {&gpu::kernel<StartSubgraphKernel, P, N>(), &gpu::kernel<CountEdgesKernel, P, N>(),
        &gpu::kernel<TakeEdgesKernel, P, N>(), &gpu::kernel<CountNewKernel, P, N>(),
        &gpu::kernel<CountBeforeKernel, P, N>(), &gpu::kernel<NumberNewKernel, P, N>(),
        &gpu::kernel<FinishSubgraphKernel, P, N>()})
    all.push_back(kernel);
}

}  // namespace

template <typename P, typename N>
void find_subgraph(const SubgraphArgs<P, N>& args, int device, gpu::Stream stream) {
  using Args = SubgraphArgs<P, N>;
  const gpu::Shape shape{kSubgraphBlocks, kSubgraphThreads, 0, stream};
  // Compiled at the same time, when they are first needed.
  gpu::load(device, {&gpu::kernel<StartSubgraphKernel, P, N>(), &gpu::kernel<CountEdgesKernel, P, N>(),
                     &gpu::kernel<TakeEdgesKernel, P, N>(), &gpu::kernel<CountNewKernel, P, N>(),
                     &gpu::kernel<CountBeforeKernel, P, N>(), &gpu::kernel<NumberNewKernel, P, N>(),
                     &gpu::kernel<FinishSubgraphKernel, P, N>()});
  gpu::launch<Args>(gpu::kernel<StartSubgraphKernel, P, N>(), device, shape, args);
  for (int hop = 0; hop < args.num_hops; ++hop) {
    gpu::launch<Args, int>(gpu::kernel<CountEdgesKernel, P, N>(), device, shape, args, hop);
    gpu::launch<Args, int>(gpu::kernel<TakeEdgesKernel, P, N>(), device, shape, args, hop);
    gpu::launch<Args, int>(gpu::kernel<CountNewKernel, P, N>(), device, shape, args, hop);
    gpu::launch<Args, int>(gpu::kernel<CountBeforeKernel, P, N>(), device, shape, args, hop);
    gpu::launch<Args, int>(gpu::kernel<NumberNewKernel, P, N>(), device, shape, args, hop);
  }
  gpu::launch<Args>(gpu::kernel<FinishSubgraphKernel, P, N>(), device, shape, args);
}

template void find_subgraph<int32_t, int32_t>(const SubgraphArgs<int32_t, int32_t>&, int, gpu::Stream);
template void find_subgraph<int64_t, int32_t>(const SubgraphArgs<int64_t, int32_t>&, int, gpu::Stream);
template void find_subgraph<int64_t, int64_t>(const SubgraphArgs<int64_t, int64_t>&, int, gpu::Stream);

std::vector<gpu::Kernel*> subgraph_kernels() {
  std::vector<gpu::Kernel*> all;
  add_kernels<int32_t, int32_t>(all);
  add_kernels<int64_t, int32_t>(all);
  add_kernels<int64_t, int64_t>(all);
  return all;
}

}  // namespace loader
