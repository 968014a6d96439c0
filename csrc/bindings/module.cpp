// The extension module loader._core: one function of each bindings file, nothing else.
#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace loader {
void bind_items(py::module_& m);
void bind_sampler(py::module_& m);
void bind_trees(py::module_& m);
void bind_features(py::module_& m);
void bind_disk(py::module_& m);
void bind_aggregate(py::module_& m);
void bind_weights(py::module_& m);
void bind_gpu(py::module_& m);
void bind_walks(py::module_& m);
void bind_pyg(py::module_& m);
void bind_links(py::module_& m);
void bind_links_cuda(py::module_& m);
void bind_subgraph_cuda(py::module_& m);
void bind_induced(py::module_& m);
void bind_induced_cuda(py::module_& m);
void bind_traverse(py::module_& m);
void bind_items_cuda(py::module_& m);
void bind_sampler_cuda(py::module_& m);
void bind_trees_cuda(py::module_& m);
void bind_features_cuda(py::module_& m);
void bind_renewal_cuda(py::module_& m);
void bind_aggregate_cuda(py::module_& m);
void bind_layers_cuda(py::module_& m);
void bind_layout_cuda(py::module_& m);
void bind_attention_cuda(py::module_& m);
void bind_walks_cuda(py::module_& m);
void bind_traverse_cuda(py::module_& m);
}  // namespace loader

PYBIND11_MODULE(_core, m) {
  m.doc() = "C++ core of the loader: samplers, feature gathering, neighborhood aggregation.";
  loader::bind_items(m);
  loader::bind_weights(m);
  loader::bind_sampler(m);
  loader::bind_trees(m);
  loader::bind_features(m);
  loader::bind_disk(m);
  loader::bind_aggregate(m);
  loader::bind_gpu(m);
  loader::bind_items_cuda(m);
  loader::bind_sampler_cuda(m);
  loader::bind_trees_cuda(m);
  loader::bind_features_cuda(m);
  loader::bind_renewal_cuda(m);
  loader::bind_aggregate_cuda(m);
  loader::bind_layers_cuda(m);
  loader::bind_layout_cuda(m);
  loader::bind_attention_cuda(m);
  loader::bind_walks(m);
  loader::bind_walks_cuda(m);
  loader::bind_pyg(m);
  loader::bind_links(m);
  loader::bind_links_cuda(m);
  loader::bind_subgraph_cuda(m);
  loader::bind_induced(m);
  loader::bind_induced_cuda(m);
  loader::bind_traverse(m);
  loader::bind_traverse_cuda(m);
}
