#include "items/cuda/order.h"

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"

namespace loader {
namespace {

constexpr int kThreads = 256;

struct ItemsAtKernel {
  static constexpr const char *header = "items/cuda/order.cuh", *name = "items_at_kernel";
};

}  // namespace

void launch_items_at(const Permutation& order, const Runs& runs, int64_t* out, int device,
                     gpu::Stream stream) {
  if (runs.count == 0) return;
  const auto blocks = static_cast<unsigned>((runs.count + kThreads - 1) / kThreads);
  gpu::launch<Permutation, Runs, int64_t*>(gpu::kernel<ItemsAtKernel>(), device,
                                           {blocks, kThreads, 0, stream}, order, runs, out);
}

std::vector<gpu::Kernel*> item_kernels() { return {&gpu::kernel<ItemsAtKernel>()}; }

}  // namespace loader
