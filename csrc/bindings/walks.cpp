// Exports the walks on the CPU: checks what Python hands over, picks the instantiation, releases the GIL.
#include "bindings/walks.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "bindings/views.h"
#include "walks/cpu/edge_filter.h"
#include "walks/cpu/negatives.h"
#include "walks/cpu/walk.h"

namespace loader {
namespace {

// The lists of one graph, and the threads that walk through them. One call at a time has the threads; others
// wait.
class WalkEngine {
 public:
  WalkEngine(py::object indptr, py::object indices, py::object sorted, int64_t groups, int64_t num_threads)
      : indptr_(std::move(indptr)),
        indices_(std::move(indices)),
        sorted_(std::move(sorted)),
        groups_(groups) {
    check_num_threads(num_threads);
    if (groups < 0 || groups > kMaxMetapath)
      throw py::value_error("groups is " + std::to_string(groups) + "; it must be 0 to " +
                            std::to_string(kMaxMetapath));
    pool_ = std::make_unique<ThreadPool>(static_cast<int>(num_threads));
    wide_edges_ = dtype_of(indptr_) == "torch.int64";
    wide_nodes_ = dtype_of(indices_) == "torch.int64";
    if (wide_nodes_)
      look<int64_t, int64_t>();
    else if (wide_edges_)
      look<int64_t, int32_t>();
    else
      look<int32_t, int32_t>();
  }

  void walk(const py::object& starts, uint64_t first_lane, uint64_t key, int64_t length, uint64_t stop_below,
            uint64_t home_below, const Acceptance& accept, const std::vector<int64_t>& path,
            const py::object& vertices, const py::object& places) {
    const WalkRules rules = checked_rules(key, stop_below, home_below, accept);
    const uint32_t steps = checked_length(length);
    check_path(path, groups_);
    if (accept && groups_) throw py::value_error("a metapath has no second order");
    if (accept && rules.common != rules.far && sorted_.is_none())
      throw py::value_error("the second order searches; it needs `sorted`");
    const bool coin = home_below > 0;
    if (wide_nodes_)
      walk_as<int64_t, int64_t>(starts, first_lane, rules, steps, coin, accept.has_value(), path, vertices,
                                places);
    else if (wide_edges_)
      walk_as<int64_t, int32_t>(starts, first_lane, rules, steps, coin, accept.has_value(), path, vertices,
                                places);
    else
      walk_as<int32_t, int32_t>(starts, first_lane, rules, steps, coin, accept.has_value(), path, vertices,
                                places);
  }

  // `out` [walkers, count]: vertices at random, of walkers `first_lane` on.
  void negatives(uint64_t first_lane, uint64_t key, int64_t walkers, int64_t count, const py::object& out) {
    check_negatives(num_nodes_, walkers, count);
    const Negatives law{key, static_cast<uint32_t>(num_nodes_)};
    const auto draw = [&](auto memory) {
      py::gil_scoped_release release;
      std::lock_guard<LongMutex> lock(mutex_);
      draw_negatives(law, first_lane, walkers, count, memory.data, *pool_);
    };
    if (wide_nodes_)
      draw(view<int64_t>(out, "out", walkers * count));
    else
      draw(view<int32_t>(out, "out", walkers * count));
  }

  // Takes memory for the filter of all edges, int64 zeros, and fills it; the caller keeps it.
  void sift_by(py::object words) {
    const auto memory = view<int64_t>(words, "words", static_cast<int64_t>(filter_words(num_edges_)));
    if (groups_) throw py::value_error("a metapath has no second order");
    const EdgeFilter filter{reinterpret_cast<uint64_t*>(memory.data), filter_words(num_edges_)};
    py::gil_scoped_release release;
    std::lock_guard<LongMutex> lock(mutex_);
    if (wide_nodes_)
      fill<int64_t, int64_t>(filter);
    else if (wide_edges_)
      fill<int64_t, int32_t>(filter);
    else
      fill<int32_t, int32_t>(filter);
    filter_ = filter;
  }

 private:
  template <typename P, typename N>
  void fill(const EdgeFilter& filter) {
    fill_filter(PlainLists<P, N>{static_cast<const P*>(indptr_at_), static_cast<const N*>(indices_at_)},
                num_nodes_, filter, *pool_);
  }

  template <typename P, typename N>
  void look() {
    const auto offsets = view<const P>(indptr_, "indptr");
    const auto sources = view<const N>(indices_, "indices");
    if (offsets.size < 1 || offsets.data[offsets.size - 1] != sources.size)
      throw py::value_error("indptr does not end at len(indices) = " + std::to_string(sources.size));
    const int64_t of_each = std::max<int64_t>(groups_, 1);
    if ((offsets.size - 1) % of_each)
      throw py::value_error("indptr has " + std::to_string(offsets.size) + " entries; they must be " +
                            std::to_string(of_each) + " of each vertex, and one");
    num_nodes_ = (offsets.size - 1) / of_each;
    num_edges_ = sources.size;
    indptr_at_ = offsets.data;
    indices_at_ = sources.data;
    if (!sorted_.is_none()) sorted_at_ = view<const N>(sorted_, "sorted", sources.size).data;
  }

  template <typename P, typename N>
  void walk_as(const py::object& starts, uint64_t first_lane, const WalkRules& rules, uint32_t length,
               bool coin, bool second, const std::vector<int64_t>& path, const py::object& vertices,
               const py::object& places) {
    const auto from = view<const N>(starts, "starts");
    const auto to = view<N>(vertices, "vertices", from.size * (int64_t{length} + 1));
    P* const edges = places.is_none() ? nullptr : view<P>(places, "places", from.size * int64_t{length}).data;
    const WalkOut<P, N> out{from.data, from.size, first_lane, length, to.data, edges};
    const PlainLists<P, N> plain{static_cast<const P*>(indptr_at_), static_cast<const N*>(indices_at_)};
    const auto* const sorted = static_cast<const N*>(sorted_at_);

    py::gil_scoped_release release;
    for (int64_t i = 0; i < from.size; ++i)
      if (from.data[i] < 0 || from.data[i] >= num_nodes_)
        throw std::invalid_argument("start holds vertex " + std::to_string(from.data[i]) +
                                    "; valid ids are 0 to " + std::to_string(num_nodes_ - 1));
    std::lock_guard<LongMutex> lock(mutex_);
    if (groups_) {
      MetapathLists<P, N> lists{plain, groups_, static_cast<uint32_t>(path.size()), {}};
      std::copy(path.begin(), path.end(), lists.path);
      return coin ? go<true, false>(rules, lists, out) : go<false, false>(rules, lists, out);
    }
    const WalkLists<P, N> lists{plain, sorted, filter_};
    if (second) return coin ? go<true, true>(rules, lists, out) : go<false, true>(rules, lists, out);
    coin ? go<true, false>(rules, lists, out) : go<false, false>(rules, lists, out);
  }

  template <bool Coin, bool Second, class Lists, class Out>
  void go(const WalkRules& rules, const Lists& lists, const Out& out) {
    walk_on_cpu(WalkLaw<UniformProposal, Coin, Second>{rules, {}}, lists, out, *pool_);
  }

  const py::object indptr_, indices_, sorted_;  // the core holds their addresses
  const int64_t groups_;
  bool wide_edges_ = false, wide_nodes_ = false;
  int64_t num_nodes_ = 0, num_edges_ = 0;
  EdgeFilter filter_{nullptr, 0};
  const void *indptr_at_ = nullptr, *indices_at_ = nullptr, *sorted_at_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  LongMutex mutex_;
};

}  // namespace

void bind_walks(py::module_& m) {
  m.attr("max_walk_length") = kMaxWalkLength;
  m.attr("max_metapath") = kMaxMetapath;
  m.def(
      "walk_key",
      [](uint64_t seed, uint64_t epoch, uint64_t batch) {
        return batch_key(seed, epoch, batch, Purpose::kWalk);
      },
      py::arg("seed"), py::arg("epoch"), py::arg("batch"));
  m.def(
      "negatives_key",
      [](uint64_t seed, uint64_t epoch, uint64_t batch) {
        return batch_key(seed, epoch, batch, Purpose::kNegative);
      },
      py::arg("seed"), py::arg("epoch"), py::arg("batch"));
  py::class_<WalkEngine>(m, "WalkEngine")
      .def(py::init<py::object, py::object, py::object, int64_t, int64_t>(), py::arg("indptr"),
           py::arg("indices"), py::arg("sorted"), py::arg("groups"), py::arg("num_threads"))
      .def("walk", &WalkEngine::walk, py::arg("starts"), py::arg("first_lane"), py::arg("key"),
           py::arg("length"), py::arg("stop_below"), py::arg("home_below"), py::arg("accept"),
           py::arg("path"), py::arg("vertices"), py::arg("places"))
      .def("negatives", &WalkEngine::negatives, py::arg("first_lane"), py::arg("key"), py::arg("walkers"),
           py::arg("count"), py::arg("out"))
      .def("sift_by", &WalkEngine::sift_by, py::arg("words"));
  m.def("filter_words", [](int64_t num_edges) { return filter_words(num_edges); }, py::arg("num_edges"));
}

}  // namespace loader
