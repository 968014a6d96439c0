// How trees are sampled, as Python says it: checked, with the arrays that are read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bindings/choice.h"
#include "bindings/hetero.h"
#include "sampler/trees.h"

namespace loader {

// The times of a graph's entries, and the rules for what is seen.
struct Times {
  py::object ranks;     // [num_edges] int32, ascending in each list
  py::object coarse;    // [(num_edges + 31) / 32] int32: the rank of entry 0, 32, 64, ...
  py::object always;    // [(relations + 31) / 32] int32, see TimedLists
  py::object values;    // [number of distinct times] int64, ascending
  bool strict;          // what is as late as the bound is not seen
  py::object window;    // an integer, or None, see SeedTimes
  bool of_edge;         // see BoundRule
  py::object first_of;  // [number of distinct times] int32, or None

  BoundRule rule(const Place& place) const {
    if (!of_edge && !first_of.is_none())
      throw py::value_error("first_of is given; the bounds are those of seeds");
    return {of_edge, strict,
            first_of.is_none() ? nullptr
                               : read_by_sampler<int32_t>(first_of, "first_of",
                                                          values.attr("numel")().cast<int64_t>(), place)};
  }

  SeedTimes of_seeds(const Place& place) const {
    const auto count = values.attr("numel")().cast<int64_t>();
    return {true, read_by_sampler<int64_t>(values, "values", count, place), count, !window.is_none(),
            window.is_none() ? 0 : window.cast<int64_t>()};
  }

  template <typename P, typename N>
  void add_to(TimedLists<P, N>& lists, int64_t num_edges, int64_t num_relations, const Place& place) const {
    constexpr int64_t kApart = TimedLists<P, N>::kApart;
    lists.ranks = read_by_sampler<int32_t>(ranks, "ranks", num_edges, place);
    lists.coarse = read_by_sampler<int32_t>(coarse, "coarse", (num_edges + kApart - 1) / kApart, place);
    lists.always = reinterpret_cast<const uint32_t*>(
        read_by_sampler<int32_t>(always, "always", (num_relations + 31) / 32, place));
  }
};

// Local to the module: tests load the same class once more, for the host.
inline void bind_times(py::module_& m) {
  py::class_<Times>(m, "Times", py::module_local())
      .def(py::init([](py::object ranks, py::object coarse, py::object always, py::object values, bool strict,
                       py::object window, bool of_edge, py::object first_of) {
             return Times{std::move(ranks), std::move(coarse), std::move(always), std::move(values),
                          strict,           std::move(window), of_edge,           std::move(first_of)};
           }),
           py::arg("ranks"), py::arg("coarse"), py::arg("always"), py::arg("values"), py::kw_only(),
           py::arg("strict"), py::arg("window"), py::arg("of_edge"), py::arg("first_of"));
}

// The graph of these lists; `times`: Times or None.
template <typename P, typename N>
GraphOf<TimedLists<P, N>> timed_graph(const Types& types, View<const P> offsets, View<const N> sources,
                                      const py::object& times, const Place& place) {
  const auto graph_of_types = types.graph(offsets, sources.data);
  if (graph_of_types.num_nodes > kMostTreeVertices)
    throw py::value_error("the graph has " + std::to_string(graph_of_types.num_nodes) +
                          " nodes; trees of at most " + std::to_string(kMostTreeVertices) + " are sampled");
  GraphOf<TimedLists<P, N>> graph{{{graph_of_types.lists}, nullptr, nullptr, nullptr},
                                  graph_of_types.num_nodes};
  if (!times.is_none())
    times.cast<const Times&>().add_to(graph.lists, sources.size, types.num_relations(), place);
  return graph;
}

}  // namespace loader
