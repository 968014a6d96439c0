#include "induced/cuda/induced.h"

#include <algorithm>

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"
#include "induced/cuda/kernels.h"

namespace loader {
namespace {

gpu::Shape shape_for(int64_t threads, gpu::Stream stream) {
  return {gpu::blocks_for(threads, kInducedThreads, "entries"), kInducedThreads, 0, stream};
}

}  // namespace

template <typename P, typename N>
void induced_table(const InducedCall<P, N>& call, int device, gpu::Stream stream) {
  // Compiled at the same time, when they are first needed.
  gpu::load(device, {&gpu::kernel<InducedTableKernel, P, N>(), &gpu::kernel<InducedCountKernel, P, N>(),
                     &gpu::kernel<InducedEdgesKernel, P, N>()});
  gpu::launch<InducedCall<P, N>>(gpu::kernel<InducedTableKernel, P, N>(), device,
                                 shape_for(std::max(call.asked.num_nodes, call.asked.num_rows), stream),
                                 call);
}

template <typename P, typename N>
void induced_count(const InducedCall<P, N>& call, int device, gpu::Stream stream) {
  gpu::launch<InducedCall<P, N>>(gpu::kernel<InducedCountKernel, P, N>(), device,
                                 shape_for(32 * call.chunks(), stream), call);
}

template <typename P, typename N>
void induced_edges(const InducedCall<P, N>& call, int device, gpu::Stream stream) {
  gpu::launch<InducedCall<P, N>>(gpu::kernel<InducedEdgesKernel, P, N>(), device,
                                 shape_for(32 * call.chunks(), stream), call);
}

#define INSTANTIATE(P, N)                                                  \
  template void induced_table(const InducedCall<P, N>&, int, gpu::Stream); \
  template void induced_count(const InducedCall<P, N>&, int, gpu::Stream); \
  template void induced_edges(const InducedCall<P, N>&, int, gpu::Stream);
INSTANTIATE(int32_t, int32_t)
INSTANTIATE(int64_t, int32_t)
INSTANTIATE(int64_t, int64_t)
#undef INSTANTIATE

namespace {

template <typename P, typename N>
void add_induced(std::vector<gpu::Kernel*>& all) {
  all.push_back(&gpu::kernel<InducedTableKernel, P, N>());
  all.push_back(&gpu::kernel<InducedCountKernel, P, N>());
  all.push_back(&gpu::kernel<InducedEdgesKernel, P, N>());
}

}  // namespace

std::vector<gpu::Kernel*> induced_kernels() {
  std::vector<gpu::Kernel*> all;
  add_induced<int32_t, int32_t>(all);
  add_induced<int64_t, int32_t>(all);
  add_induced<int64_t, int64_t>(all);
  return all;
}

}  // namespace loader
