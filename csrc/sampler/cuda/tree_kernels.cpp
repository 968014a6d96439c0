#include "gpu/all_kernels.h"
#include "sampler/cuda/tree_launch.h"

namespace loader {
namespace {

template <typename P, typename N>
void add(std::vector<gpu::Kernel*>& all) {
  using Uniform = TreeArgs<P, N, UniformChoice>;
  using Last = TreeArgs<P, N, LastChoice>;
  using Scanned = TreeArgs<P, N, ScanChoice>;
  all.insert(all.end(), {&gpu::kernel<TreeKernel, gpu::Int<kWide>, Uniform>(),
                         &gpu::kernel<TreeKernel, gpu::Int<kWide>, Last>(),
                         &gpu::kernel<TreeKernel, gpu::Int<kWide>, Scanned>()});
  if constexpr (sizeof(N) == 4)
    all.insert(all.end(), {&gpu::kernel<TreeKernel, gpu::Int<10>, Uniform>(),
                           &gpu::kernel<TreeKernel, gpu::Int<20>, Uniform>(),
                           &gpu::kernel<TreeKernel, gpu::Int<10>, Last>()});
}

}  // namespace

std::vector<gpu::Kernel*> tree_kernels() {
  std::vector<gpu::Kernel*> all;
  add<int32_t, int32_t>(all);
  add<int64_t, int32_t>(all);
  add<int64_t, int64_t>(all);
  return all;
}

}  // namespace loader
