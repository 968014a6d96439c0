// Exports what kernels are compiled from, which there are, and who compiles them: loader/kernels.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings/gpu.h"
#include "gpu/all_kernels.h"
#include "gpu/sources.h"

namespace loader {
namespace {

// Asks `loader.kernels.compile_kernels`, which is imported when a kernel is first needed.
std::vector<gpu::Image> compile_in_python(int major, int minor,
                                          const std::vector<const gpu::Kernel*>& kernels, bool refused) {
  const py::gil_scoped_acquire gil;
  py::list wanted;
  for (const gpu::Kernel* const kernel : kernels)
    wanted.append(py::make_tuple(kernel->header(), kernel->name()));
  const py::object made =
      py::module_::import("loader.kernels").attr("compile_kernels")(wanted, 10 * major + minor, refused);
  std::vector<gpu::Image> images;
  for (const py::handle one : made) {
    const auto pair = one.cast<py::tuple>();
    images.push_back({pair[0].cast<std::string>(), pair[1].cast<std::string>()});
  }
  if (images.size() != kernels.size())
    throw std::runtime_error("compile_kernels gives one image for each kernel");
  return images;
}

py::dict sources() {
  py::dict all;
  for (const gpu::Source* source = gpu::kSources; source->name; ++source) all[source->name] = source->text;
  return all;
}

// (header, name) of every kernel that a run can ask for.
std::vector<std::pair<std::string, std::string>> all_kernels() {
  std::vector<std::pair<std::string, std::string>> names;
  const auto add = [&](const std::vector<gpu::Kernel*>& kernels) {
    for (const gpu::Kernel* const kernel : kernels) names.emplace_back(kernel->header(), kernel->name());
  };
  add(sampler_kernels());
  add(tree_kernels());
  add(gather_kernels());
  add(renewal_kernels());
  add(mean_kernels());
  add(layer_kernels());
  add(layout_kernels());
  add(attention_kernels());
  add(item_kernels());
  add(link_kernels());
  add(subgraph_kernels());
  add(induced_kernels());
  add(walk_kernels());
  add(traverse_kernels());
  return names;
}

}  // namespace

void bind_gpu(py::module_& m) {
  gpu::compile_by(compile_in_python);
  m.def("cuda_sources", &sources);
  m.def("cuda_kernels", &all_kernels);
  m.def("cuda_driver_version", &gpu::driver_version);
}

}  // namespace loader
