// Induced subgraphs on the GPU as a module of the host: the bindings and the kernels as they are, with a
// stand-in for CUDA.
#include "device_code.h"
// The stand-in above comes first.
#include "gpu/kernel.h"
#include "induced/cuda/induced.cuh"
#include "induced/cuda/kernels.h"

namespace loader::gpu {

template <typename P, typename N>
struct Compiled<InducedTableKernel, P, N> {
  static constexpr auto* function = induced_table_kernel<P, N>;
};
template <>
struct Compiled<InducedSumsKernel> {
  static constexpr auto* function = induced_sums_kernel;
};
template <typename P, typename N>
struct Compiled<InducedCountKernel, P, N> {
  static constexpr auto* function = induced_count_kernel<P, N>;
};
template <typename P, typename N>
struct Compiled<InducedEdgesKernel, P, N> {
  static constexpr auto* function = induced_edges_kernel<P, N>;
};

}  // namespace loader::gpu

#include "bindings/induced_cuda.cpp"
#include "induced/cuda/induced.cpp"

PYBIND11_MODULE(induced_on_host, m) {
  on_host::machine.multiprocessors = {2};
  loader::bind_induced_cuda(m);
  m.def("refuse_launch", [](int after) { on_host::machine.launches_until_refused = after; });
}
