#include "items/cuda/order.h"

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"

namespace loader {
namespace {

LOADER_KERNEL(ItemsAtKernel, "items/cuda/order.cuh", "items_at_kernel")

}  // namespace

void launch_items_at(const Permutation& order, const Runs& runs, int64_t* out, int device,
                     gpu::Stream stream) {
  if (runs.count == 0) return;
  const unsigned blocks = gpu::blocks_for(runs.count, kItemThreads, "items");
  gpu::launch<Permutation, Runs, int64_t*>(gpu::kernel<ItemsAtKernel>(), device,
                                           {blocks, kItemThreads, 0, stream}, order, runs, out);
}

std::vector<gpu::Kernel*> item_kernels() { return {&gpu::kernel<ItemsAtKernel>()}; }

}  // namespace loader
