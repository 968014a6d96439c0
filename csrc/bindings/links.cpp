// Exports the drawing of negative links on the CPU.
#include "bindings/links.h"

#include <string>

#include "bindings/views.h"
#include "links/cpu/draw_negatives.h"

namespace loader {
namespace {

Existing existing_of(const py::object& counts, const py::object& order, uint32_t all, int64_t negatives,
                     const char* name) {
  Existing found{nullptr, nullptr, all, all, name};
  const std::string of_counts = std::string(name) + "_counts", of_order = std::string(name) + "_order";
  if (!counts.is_none()) found.counts = view<const int64_t>(counts, of_counts.c_str(), negatives).data;
  if (order.is_none()) return found;
  const auto places = view<const int64_t>(order, of_order.c_str());
  if (places.size > int64_t{all})
    throw py::value_error(of_order + " has " + std::to_string(places.size) + " elements; there are " +
                          std::to_string(all) + " nodes");
  found.order = places.data;
  found.most = static_cast<uint32_t>(places.size);
  return found;
}

template <typename P, typename N>
CheckedEdges<P, N> known_of(const py::object& indptr, const py::object& indices, int64_t num_targets) {
  const auto offsets = offsets_view<P>(indptr, "indptr", num_targets);
  const auto entries = view<const N>(indices, "indices");
  return {{offsets.data, entries.data}, entries.size};
}

void negatives(int64_t num_sources, int64_t num_targets, bool one_type, uint64_t seed, uint64_t epoch,
               uint64_t batch, const py::object& given, const py::object& sources, const py::object& targets,
               const py::object& indptr, const py::object& indices, bool strict,
               const py::object& source_counts, const py::object& source_order,
               const py::object& target_counts, const py::object& target_order) {
  const EndCounts counts = counts_of(num_sources, num_targets, one_type);
  const uint64_t key = batch_key(seed, epoch, batch, Purpose::kNegative);
  const auto out = view<int64_t>(targets, "targets");
  NegativeEnds ends{nullptr, 1, nullptr, out.data, out.size};
  if (given.is_none()) {
    ends.sources = view<int64_t>(sources, "sources", out.size).data;
  } else {
    const auto from = view<const int64_t>(given, "given");
    if (from.size == 0 ? out.size != 0 : out.size % from.size != 0)
      throw py::value_error("targets has " + std::to_string(out.size) +
                            " elements; it must have as many for each of the " + std::to_string(from.size) +
                            " sources");
    ends.given = from.data;
    ends.each = from.size ? out.size / from.size : 1;
    for (int64_t i = 0; i < from.size; ++i)
      if (from.data[i] < 0 || from.data[i] >= num_sources)
        throw py::value_error("seeds holds node " + std::to_string(from.data[i]) + "; valid ids are 0 to " +
                              std::to_string(num_sources - 1));
  }
  const Existing of_source = existing_of(source_counts, source_order, counts.sources, out.size, "source");
  const Existing of_target = existing_of(target_counts, target_order, counts.targets, out.size, "target");
  const auto drawn = [&](const auto& known) {
    draw_negatives(of_source, of_target, one_type, key, strict, known, ends);
  };
  if (indptr.is_none()) return drawn(CheckedEdges<int64_t, int64_t>{{}, 0});
  const bool wide_edges = has_dtype<int64_t>(indptr), wide_nodes = has_dtype<int64_t>(indices);
  if (wide_nodes) return drawn(known_of<int64_t, int64_t>(indptr, indices, num_targets));
  if (wide_edges) return drawn(known_of<int64_t, int32_t>(indptr, indices, num_targets));
  drawn(known_of<int32_t, int32_t>(indptr, indices, num_targets));
}

}  // namespace

void bind_links(py::module_& m) {
  m.def("negatives", &negatives, py::arg("num_sources"), py::arg("num_targets"), py::arg("one_type"),
        py::arg("seed"), py::arg("epoch"), py::arg("batch"), py::arg("given"), py::arg("sources"),
        py::arg("targets"), py::arg("indptr"), py::arg("indices"), py::arg("strict"),
        py::arg("source_counts") = py::none(), py::arg("source_order") = py::none(),
        py::arg("target_counts") = py::none(), py::arg("target_order") = py::none());
}

}  // namespace loader
