// The extension's GPU sampler of trees as a module of the host: the bindings and the kernels as they are,
// with a stand-in for CUDA.
#include "device_code.h"
// The stand-in for CUDA comes first.
#include "sampler/cuda/tree_kernels.cuh"
#include "sampler/cuda/tree_launch.h"

namespace loader::gpu {

template <int W, typename Args>
struct Compiled<TreeKernel, Int<W>, Args> {
  static constexpr auto* function = tree_kernel<W, Args>;
};

}  // namespace loader::gpu

#include "bindings/trees_cuda.cpp"

PYBIND11_MODULE(trees_on_host, m) {
  on_host::machine.multiprocessors = {2};
  pybind11::class_<loader::Result>(m, "CudaResult", pybind11::module_local())
      .def("wait", &loader::Result::wait)
      .def("peek", &loader::Result::peek);
  loader::bind_times(m);
  loader::bind_trees_cuda(m);
  m.attr("cuda_hetero_header_bytes") = sizeof(loader::HeteroHeader);
}
