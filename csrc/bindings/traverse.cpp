// Exports the traversals on the CPU: checks what Python hands over, picks the instantiation, releases the
// GIL.
#include "bindings/traverse.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "bindings/unlocked.h"
#include "traverse/cpu/bfs.h"
#include "traverse/cpu/components.h"
#include "traverse/cpu/pagerank.h"
#include "traverse/cpu/sssp.h"
#include "traverse/cpu/symmetry.h"

namespace loader {
namespace {

template <typename N>
void check_sources(const View<const N>& sources, int64_t num_nodes) {
  for (int64_t i = 0; i < sources.size; ++i)
    if (sources.data[i] < 0 || sources.data[i] >= num_nodes)
      throw py::value_error("source holds node " + std::to_string(sources.data[i]) + "; valid ids are 0 to " +
                            std::to_string(num_nodes - 1));
}

void bfs(const py::tuple& onward, const py::object& back, const py::object& sources, int64_t most, bool turns,
         const py::object& distances, const py::object& predecessors, int64_t num_threads) {
  check_num_threads(num_threads);
  if (most < 0 || most > INT32_MAX) throw py::value_error("most is " + std::to_string(most));
  if (back.is_none() && (turns || !predecessors.is_none())) throw py::value_error("there is no `back`");
  const TraversedLists forth(onward, "onward", "cpu");
  const TraversedLists other(back.is_none() ? onward : back.cast<py::tuple>(), "back", "cpu");
  other.check_like(forth);
  forth.with_types([&](auto edge, auto vertex) {
    using P = decltype(edge);
    using N = decltype(vertex);
    const auto from = view<const N>(sources, "sources");
    check_sources(from, forth.num_nodes());
    int32_t* const out = view<int32_t>(distances, "distances", forth.num_nodes()).data;
    N* const before =
        predecessors.is_none() ? nullptr : view<N>(predecessors, "predecessors", forth.num_nodes()).data;
    const auto lists = forth.lists<P, N>(), behind = other.lists<P, N>();
    const Unlocked unlocked;
    ThreadPool pool(static_cast<int>(num_threads));
    bfs_on_cpu(lists, turns ? &behind : nullptr, from.data, from.size, static_cast<int32_t>(most), out, pool);
    if (before) bfs_predecessors_on_cpu(behind, out, before, pool);
  });
}

// The largest step between piles that fits the type of weights, with room for a sum of two.
template <typename W>
constexpr double kMostDelta = std::is_integral_v<W> ? static_cast<double>(uint64_t{1} << (8 * sizeof(W) - 2))
                                                    : static_cast<double>(std::numeric_limits<W>::max());

// With a weight below 0 the piles would never be empty. They are looked at in each call, whoever wrote to
// them.
template <typename W>
void check_lengths(const W* weights, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!(weights[i] >= 0 && weights[i] <= std::numeric_limits<W>::max()))
      throw std::invalid_argument("weights[" + std::to_string(i) + "] is " + std::to_string(weights[i]) +
                                  "; a weight must be finite and at least 0");
}

void sssp(const py::tuple& onward, const py::object& weights, const py::object& sources, double delta,
          const py::object& lengths, int64_t num_threads) {
  check_num_threads(num_threads);
  if (!(delta > 0 && std::isfinite(delta)))
    throw py::value_error("delta is " + std::to_string(delta) + "; it must be finite and above 0");
  const TraversedLists forth(onward, "onward", "cpu");
  forth.with_types([&](auto edge, auto vertex) {
    using P = decltype(edge);
    using N = decltype(vertex);
    with_weight_type(weights, [&](auto weight) {
      using W = decltype(weight);
      const W* const of_edges = view<const W>(weights, "weights", forth.num_edges()).data;
      if (!(static_cast<W>(std::min<double>(delta, kMostDelta<W>)) > 0))
        throw py::value_error("delta is " + std::to_string(delta) +
                              "; it must be at least 1, as weights are");
      const auto from = view<const N>(sources, "sources");
      check_sources(from, forth.num_nodes());
      auto* const out =
          reinterpret_cast<typename Length<W>::Bits*>(view<W>(lengths, "lengths", forth.num_nodes()).data);
      const auto lists = forth.lists<P, N>();
      const Unlocked unlocked;
      check_lengths(of_edges, forth.num_edges());
      ThreadPool pool(static_cast<int>(num_threads));
      const auto step = static_cast<W>(std::min<double>(delta, kMostDelta<W>));
      sssp_on_cpu(lists, of_edges, from.data, from.size, step, out, pool);
    });
  });
}

void components(const py::tuple& arrays, bool symmetric, const py::object& labels, int64_t num_threads) {
  check_num_threads(num_threads);
  const TraversedLists known(arrays, "lists", "cpu");
  known.with_types([&](auto edge, auto vertex) {
    using N = decltype(vertex);
    N* const out = view<N>(labels, "labels", known.num_nodes()).data;
    const auto lists = known.lists<decltype(edge), N>();
    const Unlocked unlocked;
    ThreadPool pool(static_cast<int>(num_threads));
    components_on_cpu(lists, symmetric, out, pool);
  });
}

// Returns the change of the last iteration, as a share of 2^62, and the number of iterations.
py::tuple pagerank(const py::tuple& back, uint64_t damping, const py::object& own, uint64_t close,
                   int64_t max_iter, const py::object& ranks, int64_t num_threads) {
  check_num_threads(num_threads);
  const TraversedLists known(back, "back", "cpu");
  RankResult result{};
  known.with_types([&](auto edge, auto vertex) {
    const int64_t n = known.num_nodes();
    const RankLaw law = checked_law(damping, n, close, max_iter,
                                    own.is_none() ? nullptr : view<const int64_t>(own, "own", n).data);
    double* const out = view<double>(ranks, "ranks", n).data;
    const auto lists = known.lists<decltype(edge), decltype(vertex)>();
    const Unlocked unlocked;
    ThreadPool pool(static_cast<int>(num_threads));
    result = pagerank_on_cpu(lists, law, out, pool);
  });
  return py::make_tuple(result.change, result.iterations);
}

bool symmetric(const py::tuple& arrays, const py::object& weights, int64_t num_threads) {
  check_num_threads(num_threads);
  const TraversedLists known(arrays, "lists", "cpu");
  bool result = false;
  known.with_types([&](auto edge, auto vertex) {
    const auto lists = known.lists<decltype(edge), decltype(vertex)>();
    const void* of_edges = nullptr;
    int bytes = 0;
    if (!weights.is_none())
      with_weight_type(weights, [&](auto weight) {
        of_edges = view<const decltype(weight)>(weights, "weights", known.num_edges()).data;
        bytes = sizeof(weight);
      });
    const Unlocked unlocked;
    ThreadPool pool(static_cast<int>(num_threads));
    result = is_symmetric(lists, of_edges, bytes, pool);
  });
  return result;
}

}  // namespace

void bind_traverse(py::module_& m) {
  m.def("traverse_bfs", &bfs, py::arg("onward"), py::arg("back"), py::arg("sources"), py::arg("most"),
        py::arg("turns"), py::arg("distances"), py::arg("predecessors"), py::arg("num_threads"));
  m.def("traverse_sssp", &sssp, py::arg("onward"), py::arg("weights"), py::arg("sources"), py::arg("delta"),
        py::arg("lengths"), py::arg("num_threads"));
  m.def("traverse_components", &components, py::arg("lists"), py::arg("symmetric"), py::arg("labels"),
        py::arg("num_threads"));
  m.def("traverse_pagerank", &pagerank, py::arg("back"), py::arg("damping"), py::arg("own"), py::arg("close"),
        py::arg("max_iter"), py::arg("ranks"), py::arg("num_threads"));
  m.def("traverse_symmetric", &symmetric, py::arg("lists"), py::arg("weights"), py::arg("num_threads"));
}

}  // namespace loader
