#include "traverse/cuda/launch.h"

#include <algorithm>

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"

namespace loader {
namespace {

LOADER_KERNEL(BfsKernel, "traverse/cuda/bfs.cuh", "bfs_kernel")                       // <P, N>
LOADER_KERNEL(SsspKernel, "traverse/cuda/sssp.cuh", "sssp_kernel")                    // <P, N, W>
LOADER_KERNEL(ComponentsKernel, "traverse/cuda/components.cuh", "components_kernel")  // <P, N>
LOADER_KERNEL(RankKernel, "traverse/cuda/pagerank.cuh", "pagerank_kernel")            // <P, N>

constexpr size_t kMostShared = 32 << 10;  // bytes that a kernel declares

template <class Call>
void launch(gpu::Kernel& kernel, const Call& call, int device, gpu::Stream stream) {
  const int resident = kernel.resident_blocks(device, kTraverseThreads, 0, kTraverseBlocks, kMostShared);
  const auto blocks = static_cast<unsigned>(std::min(resident, kMaxTraverseBlocks));
  gpu::set_bytes(call.space.state, 0, sizeof(GridState), stream);
  gpu::launch<Call>(kernel, device, {blocks, kTraverseThreads, 0, stream, true}, call);
}

}  // namespace

template <typename P, typename N>
void bfs_on_gpu(const BfsCall<P, N>& call, int device, gpu::Stream stream) {
  launch(gpu::kernel<BfsKernel, P, N>(), call, device, stream);
}
template <typename P, typename N, typename W>
void sssp_on_gpu(const SsspCall<P, N, W>& call, int device, gpu::Stream stream) {
  launch(gpu::kernel<SsspKernel, P, N, W>(), call, device, stream);
}
template <typename P, typename N>
void components_on_gpu(const ComponentsCall<P, N>& call, int device, gpu::Stream stream) {
  launch(gpu::kernel<ComponentsKernel, P, N>(), call, device, stream);
}
template <typename P, typename N>
void pagerank_on_gpu(const RankCall<P, N>& call, int device, gpu::Stream stream) {
  launch(gpu::kernel<RankKernel, P, N>(), call, device, stream);
}

#define INSTANTIATE_SSSP(P, N, W) template void sssp_on_gpu(const SsspCall<P, N, W>&, int, gpu::Stream);
#define INSTANTIATE(P, N)                                                         \
  template void bfs_on_gpu(const BfsCall<P, N>&, int, gpu::Stream);               \
  template void components_on_gpu(const ComponentsCall<P, N>&, int, gpu::Stream); \
  template void pagerank_on_gpu(const RankCall<P, N>&, int, gpu::Stream);         \
  INSTANTIATE_SSSP(P, N, float)                                                   \
  INSTANTIATE_SSSP(P, N, double)                                                  \
  INSTANTIATE_SSSP(P, N, int32_t)                                                 \
  INSTANTIATE_SSSP(P, N, int64_t)
INSTANTIATE(int32_t, int32_t)
INSTANTIATE(int64_t, int32_t)
INSTANTIATE(int64_t, int64_t)

namespace {

template <typename P, typename N>
void add_all(std::vector<gpu::Kernel*>& all) {
  all.push_back(&gpu::kernel<BfsKernel, P, N>());
  all.push_back(&gpu::kernel<ComponentsKernel, P, N>());
  all.push_back(&gpu::kernel<RankKernel, P, N>());
  all.push_back(&gpu::kernel<SsspKernel, P, N, float>());
  all.push_back(&gpu::kernel<SsspKernel, P, N, double>());
  all.push_back(&gpu::kernel<SsspKernel, P, N, int32_t>());
  all.push_back(&gpu::kernel<SsspKernel, P, N, int64_t>());
}

}  // namespace

std::vector<gpu::Kernel*> traverse_kernels() {
  std::vector<gpu::Kernel*> all;
  add_all<int32_t, int32_t>(all);
  add_all<int64_t, int32_t>(all);
  add_all<int64_t, int64_t>(all);
  return all;
}

}  // namespace loader
