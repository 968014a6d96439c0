#include "walks/cuda/custom.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "gpu/kernel.h"
#include "walks/cuda/walkers_per_warp.h"

namespace loader {
namespace {

constexpr int kTileSteps = 16;

// The kernel of a function and these types, one for the whole process.
template <typename P, typename N>
gpu::Kernel& custom_kernel(const std::string& header) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<gpu::Kernel>> kernels;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<gpu::Kernel>& kernel = kernels[header];
  if (!kernel) {
    const std::string lists = gpu::spelled(gpu::spelling<P, N>("loader::CustomLists"));
    kernel = std::make_unique<gpu::Kernel>(
        header, "loader::walk_custom<" + lists + ", loader::Next, " + std::to_string(kTileSteps) + ">");
  }
  return *kernel;
}

}  // namespace

template <typename P, typename N>
void walk_custom_on_gpu(const std::string& header, const CustomRules& rules, const CustomLists<P, N>& lists,
                        const WalkOut<P, N>& out, const WalkStarts& starts, Fault* fault, int* reported,
                        int device, gpu::Stream stream) {
  if (out.count == 0) return;
  WalkStarts from = starts;
  from.together = walkers_together(out.count, kCustomBlocks, device);
  gpu::launch<CustomRules, CustomLists<P, N>, WalkOut<P, N>, WalkStarts, Fault*, int*>(
      custom_kernel<P, N>(header), device, {walk_blocks(out.count, from.together), kWalkThreads, 0, stream},
      rules, lists, out, from, fault, reported);
}

#define INSTANTIATE(P, N)                                                                            \
  template void walk_custom_on_gpu(const std::string&, const CustomRules&, const CustomLists<P, N>&, \
                                   const WalkOut<P, N>&, const WalkStarts&, Fault*, int*, int, gpu::Stream);

INSTANTIATE(int32_t, int32_t)
INSTANTIATE(int64_t, int32_t)
INSTANTIATE(int64_t, int64_t)

}  // namespace loader
