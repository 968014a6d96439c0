// Exports the CPU samplers: checks what Python hands over, picks the instantiation, releases the GIL.
#include "sampler/sampler.h"

#include <pybind11/stl.h>

#include <memory>
#include <type_traits>
#include <variant>

#include "bindings/views.h"
#include "sampler/cpu/fused.h"
#include "sampler/cpu/hopwise.h"

namespace loader {
namespace {

SampleOptions make_options(std::vector<int64_t> fanouts, bool replace, bool edge_ids, uint64_t key) {
  if (fanouts.empty() || fanouts.size() > kMaxHops)
    throw py::value_error("fanouts has " + std::to_string(fanouts.size()) + " entries; 1 to " +
                          std::to_string(kMaxHops) + " are possible");
  for (const int64_t k : fanouts)
    if (k != kAllNeighbours && (k < 1 || k > kMaxFanout))
      throw py::value_error("fanout " + std::to_string(k) + " is not possible: give 1 to " +
                            std::to_string(kMaxFanout) + ", or -1 for all neighbours");
  return {std::move(fanouts), replace, edge_ids, key};
}

// One Python class for the three combinations of types; the workspace of the last one used is kept.
template <template <typename, typename> class Impl>
class AnySampler {
 public:
  // `serial_edges`: see FusedSampler; the others have no use for it.
  explicit AnySampler(int num_threads, int64_t serial_edges = 0)
      : num_threads_(num_threads), serial_edges_(serial_edges) {
    if (num_threads < 1)
      throw py::value_error("num_threads is " + std::to_string(num_threads) + "; it must be at least 1");
  }

  std::pair<std::vector<int64_t>, std::vector<int64_t>> sample(py::handle indptr, py::handle indices,
                                                               py::handle seeds, std::vector<int64_t> fanouts,
                                                               bool replace, bool edge_ids, uint64_t key) {
    const auto options = make_options(std::move(fanouts), replace, edge_ids, key);
    const bool wide_edges = dtype_of(indptr) == "torch.int64",
               wide_nodes = dtype_of(indices) == "torch.int64";
    if (wide_nodes) return run<int64_t, int64_t>(indptr, indices, seeds, options);
    if (wide_edges) return run<int64_t, int32_t>(indptr, indices, seeds, options);
    return run<int32_t, int32_t>(indptr, indices, seeds, options);
  }

  // Arrays in hop order.
  void write(py::handle nodes, const std::vector<py::object>& indptr, const std::vector<py::object>& indices,
             const std::vector<py::object>& edge_ids) {
    std::visit(
        [&](auto& impl) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(impl)>, std::monostate>)
            write_as(*impl, nodes, indptr, indices, edge_ids);
          else
            throw std::runtime_error("write was called before sample");
        },
        impl_);
  }

 private:
  template <typename P, typename N>
  std::pair<std::vector<int64_t>, std::vector<int64_t>> run(py::handle indptr, py::handle indices,
                                                            py::handle seeds, const SampleOptions& options) {
    const auto offsets = view<const P>(indptr, "indptr");
    const auto sources = view<const N>(indices, "indices");
    const auto starts = view<const N>(seeds, "seeds");
    if (offsets.size < 1 || offsets.data[offsets.size - 1] != sources.size)
      throw py::value_error("indptr does not end at len(indices) = " + std::to_string(sources.size));
    using Pointer = std::unique_ptr<Impl<P, N>>;
    if (!std::holds_alternative<Pointer>(impl_)) impl_ = make<P, N>();
    Impl<P, N>& impl = *std::get<Pointer>(impl_);
    sizes_ = {};
    edge_ids_ = options.edge_ids;
    {
      py::gil_scoped_release release;
      sizes_ = impl.sample({offsets.data, sources.data, offsets.size - 1}, starts.data, starts.size, options);
    }
    return {sizes_.frontiers, sizes_.edges};
  }

  template <typename P, typename N>
  std::unique_ptr<Impl<P, N>> make() const {
    if constexpr (std::is_constructible_v<Impl<P, N>, int, int64_t>)
      return std::make_unique<Impl<P, N>>(num_threads_, serial_edges_);
    else
      return std::make_unique<Impl<P, N>>(num_threads_);
  }

  template <typename P, typename N>
  void write_as(Impl<P, N>& impl, py::handle nodes, const std::vector<py::object>& indptr,
                const std::vector<py::object>& indices, const std::vector<py::object>& edge_ids) {
    const size_t hops = sizes_.edges.size();
    if (hops == 0) throw std::runtime_error("write was called before a successful sample");
    if (indptr.size() != hops || indices.size() != hops || edge_ids.size() != (edge_ids_ ? hops : 0))
      throw py::value_error("write needs one array of each kind for each of the " + std::to_string(hops) +
                            " hops");
    SampleOut<P, N> out;
    out.nodes = view<N>(nodes, "nodes", sizes_.frontiers.back()).data;
    for (size_t h = 0; h < hops; ++h)
      out.blocks.push_back({view<P>(indptr[h], "indptr", sizes_.frontiers[h] + 1).data,
                            view<N>(indices[h], "indices", sizes_.edges[h]).data,
                            edge_ids_ ? view<P>(edge_ids[h], "edge_ids", sizes_.edges[h]).data : nullptr});
    py::gil_scoped_release release;
    impl.write(out);
  }

  int num_threads_;
  int64_t serial_edges_;
  bool edge_ids_ = false;
  SampleSizes sizes_;
  std::variant<std::monostate, std::unique_ptr<Impl<int32_t, int32_t>>,
               std::unique_ptr<Impl<int64_t, int32_t>>, std::unique_ptr<Impl<int64_t, int64_t>>>
      impl_;
};

template <template <typename, typename> class Impl>
py::class_<AnySampler<Impl>> bind_class(py::module_& m, const char* name) {
  using Class = AnySampler<Impl>;
  return py::class_<Class>(m, name)
      .def("sample", &Class::sample, py::arg("indptr"), py::arg("indices"), py::arg("seeds"),
           py::arg("fanouts"), py::arg("replace"), py::arg("edge_ids"), py::arg("key"))
      .def("write", &Class::write, py::arg("nodes"), py::arg("indptr"), py::arg("indices"),
           py::arg("edge_ids"));
}

}  // namespace

void bind_sampler(py::module_& m) {
  m.def(
      "batch_key",
      [](uint64_t seed, uint64_t epoch, uint64_t batch) { return batch_key(seed, epoch, batch); },
      py::arg("seed"), py::arg("epoch"), py::arg("batch"));
  bind_class<HopwiseSampler>(m, "HopwiseSampler").def(py::init<int>(), py::arg("num_threads"));
  bind_class<FusedSampler>(m, "FusedSampler")
      .def(py::init<int, int64_t>(), py::arg("num_threads"), py::arg("serial_edges"));
}

}  // namespace loader
