// The extension's GPU sampler as a module of the host: the bindings and the kernels as they are, with a
// stand-in for CUDA.
#include "sampler_kernels_on_host.h"
// Brings the stand-in for CUDA, which comes first.
#include "bindings/sampler_cuda.cpp"

PYBIND11_MODULE(engine_on_host, m) {
  on_host::machine.multiprocessors = {2};
  loader::bind_sampler_cuda(m);
  m.def("refuse_launch", [](int after) { on_host::machine.launches_until_refused = after; });
}
