// Exports the walks on the CPU: checks what Python hands over, picks the instantiation, releases the GIL.
#include "bindings/walks.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "bindings/unlocked.h"
#include "bindings/views.h"
#include "sampler/cpu/philox_lanes.h"
#include "walks/cpu/edge_filter.h"
#include "walks/cpu/negatives.h"
#include "walks/cpu/walk.h"
#include "walks/cpu/weight_cells.h"
#include "walks/custom/call.h"

namespace loader {
namespace {

constexpr int64_t kPartSteps = 1 << 14;  // of walks: less is not worth another thread
constexpr int64_t kTurnSteps =
    1 << 23;  // of walks until Python's signals are handled: a fraction of a second

// f(begin, end) over the walkers [0, count), some at a time. In between Ctrl-C may end the call. Without the
// GIL.
template <class F>
void in_turns(int64_t count, int64_t length, const F& f) {
  const int64_t most = std::max<int64_t>(kTurnSteps / std::max<int64_t>(length, 1), 1);
  for (int64_t begin = 0; begin < count; begin += most) {
    if (begin) {
      const py::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals()) throw py::error_already_set();
    }
    f(begin, std::min(begin + most, count));
  }
}

// The lists of one graph, and the threads that walk through them. One call at a time has the threads; others
// wait.
class WalkEngine {
 public:
  WalkEngine(py::object indptr, py::object indices, py::object sorted, py::object cells, int64_t groups,
             int64_t num_threads)
      : arrays_(std::move(indptr), std::move(indices), std::move(sorted), std::move(cells), groups, "cpu") {
    check_num_threads(num_threads);
    pool_ = std::make_unique<ThreadPool>(static_cast<int>(num_threads));
  }

  void walk(const py::object& starts, uint64_t first_lane, uint64_t key, int64_t length, uint64_t stop_below,
            uint64_t home_below, const Acceptance& accept, const std::vector<int64_t>& path,
            const py::object& vertices, const py::object& places) {
    arrays_.with_types([&](auto edge, auto vertex) {
      using P = decltype(edge);
      using N = decltype(vertex);
      const auto from = view<const N>(starts, "starts");
      checked_length(length);
      WalkOut<P, N> out{};
      out.starts = from.data;
      out.count = from.size;
      out.first_lane = first_lane;
      out.vertices = view<N>(vertices, "nodes", from.size * (length + 1)).data;
      if (!places.is_none()) out.places = view<P>(places, "places", from.size * length).data;
      arrays_.with_law<P, N>({key, length, stop_below, home_below, accept, path}, out,
                             [&](const auto& law, const auto& lists, const WalkOut<P, N>& to) {
                               const Unlocked unlocked;
                               check(from);
                               arrays_.require_whole();
                               in_turns(to.count, length, [&](int64_t begin, int64_t end) {
                                 WalkOut<P, N> part = to;
                                 part.starts += begin;
                                 part.count = end - begin;
                                 part.first_lane += begin;
                                 part.vertices += begin * (length + 1);
                                 if (part.places) part.places += begin * length;
                                 std::lock_guard<LongMutex> lock(mutex_);
                                 walk_on_cpu(law, lists, part, *pool_);
                               });
                               arrays_.require_whole();
                             });
    });
  }

  // Walks by a user's function, compiled: the address of a WalkCustom of these types. What it did wrong, in
  // the first row that it did so in: (wrong, line, value, row, step); None if nothing.
  py::object walk_by(uintptr_t function, const py::object& starts, uint64_t first_lane, uint64_t key,
                     int64_t length, int64_t turns, const std::vector<int64_t>& constants,
                     const py::object& weights, bool searches, bool by_weight, const py::object& vertices) {
    if (!function) throw py::value_error("there is no function");
    const CustomWalkCall call{key, length, turns, constants, weights, searches, by_weight};
    const CustomRules rules = checked_rules(call);
    Fault first{};
    arrays_.with_types([&](auto edge, auto vertex) {
      using P = decltype(edge);
      using N = decltype(vertex);
      const auto from = view<const N>(starts, "starts");
      const CustomLists<P, N> lists = arrays_.custom<P, N>(call);
      WalkOut<P, N> out{};
      out.starts = from.data;
      out.count = from.size;
      out.first_lane = first_lane;
      out.length = checked_length(length);
      out.vertices = view<N>(vertices, "nodes", from.size * (length + 1)).data;
      const Unlocked unlocked;
      check(from);
      if (length == 0) {
        std::copy_n(from.data, from.size, out.vertices);
        return;
      }
      const CustomCall to{&rules, &lists, &out, philox_lanes};
      std::mutex of_first;
      arrays_.require_whole();
      in_turns(out.count, length, [&](int64_t from_row, int64_t to_row) {
        if (first.wrong) return;  // later rows come after it
        std::lock_guard<LongMutex> lock(mutex_);
        const int64_t part = std::max<int64_t>(kPartSteps / length, 64);
        pool_->share(to_row - from_row, part, [&](int64_t begin, int64_t end) {
          Fault fault{};
          reinterpret_cast<WalkCustom>(function)(&to, from_row + begin, from_row + end, &fault);
          if (!fault.wrong) return;
          const std::lock_guard<std::mutex> own(of_first);
          if (!first.wrong || fault.row < first.row) first = fault;
        });
      });
      arrays_.require_whole();
    });
    if (!first.wrong) return py::none();
    return py::make_tuple(first.wrong, first.line, first.value, first.row, first.step);
  }

  // `out` [walkers, count]: numbers at random in [0, bound), of walkers `first_lane` on.
  void negatives(uint64_t first_lane, uint64_t key, int64_t walkers, int64_t count, int64_t bound,
                 const py::object& out) {
    arrays_.with_types([&](auto, auto vertex) {
      check_negatives(bound, walkers, count, sizeof(vertex));
      const Negatives law{key, static_cast<uint32_t>(bound)};
      const auto memory = view<decltype(vertex)>(out, "out", walkers * count);
      const Unlocked unlocked;
      std::lock_guard<LongMutex> lock(mutex_);
      draw_negatives(law, first_lane, walkers, count, memory.data, *pool_);
    });
  }

  // Makes a filter of all edges in the memory of `words`, zeros that the caller keeps.
  void sift_by(const py::object& words) {
    const EdgeFilter filter = arrays_.filter_in(words);
    arrays_.with_types([&](auto edge, auto vertex) {
      const auto lists = arrays_.plain<decltype(edge), decltype(vertex)>();
      const Unlocked unlocked;
      std::lock_guard<LongMutex> lock(mutex_);
      fill_filter(lists, arrays_.num_nodes(), filter, *pool_);
    });
    arrays_.sift_by(filter);
  }

  void set_copies(const py::object& copies, const py::object& most) { arrays_.set_copies(copies, most); }

 private:
  template <typename N>
  void check(const View<const N>& starts) const {
    for (int64_t i = 0; i < starts.size; ++i)
      if (starts.data[i] < 0 || starts.data[i] >= arrays_.num_nodes())
        throw std::invalid_argument(bad_start(starts.data[i], arrays_.num_nodes()));
  }

  WalkArrays arrays_;
  std::unique_ptr<ThreadPool> pool_;
  LongMutex mutex_;
};

// Writes to `out` [num_edges * words of a cell] what walks by weight read, of the alias tables `cells`
// [num_edges].
void walk_cells(const py::object& indptr, const py::object& indices, const py::object& cells,
                const py::object& out, int64_t num_threads) {
  check_num_threads(num_threads);
  ThreadPool pool(static_cast<int>(num_threads));
  const WalkArrays arrays(indptr, indices, py::none(), py::none(), 0, "cpu");
  const auto tables = view<const int64_t>(cells, "cells", arrays.num_edges());
  arrays.with_types([&](auto edge, auto vertex) {
    using P = decltype(edge);
    using N = decltype(vertex);
    const int64_t words = arrays.num_edges() * static_cast<int64_t>(sizeof(WalkCell<N>) / sizeof(N));
    const auto memory = view<N>(out, "out", words);
    if (reinterpret_cast<uintptr_t>(memory.data) % alignof(WalkCell<N>))
      throw py::value_error("out does not begin at a multiple of " + std::to_string(alignof(WalkCell<N>)) +
                            " bytes");
    const Unlocked unlocked;
    make_walk_cells(arrays.plain<P, N>(), arrays.num_nodes(), reinterpret_cast<const AliasCell*>(tables.data),
                    reinterpret_cast<WalkCell<N>*>(memory.data), pool);
  });
}

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
      .def(py::init<py::object, py::object, py::object, py::object, int64_t, int64_t>(), py::arg("indptr"),
           py::arg("indices"), py::arg("sorted"), py::arg("cells"), py::arg("groups"), py::arg("num_threads"))
      .def("walk", &WalkEngine::walk, py::arg("starts"), py::arg("first_lane"), py::arg("key"),
           py::arg("length"), py::arg("stop_below"), py::arg("home_below"), py::arg("accept"),
           py::arg("path"), py::arg("nodes"), py::arg("places"))
      .def("walk_by", &WalkEngine::walk_by, py::arg("function"), py::arg("starts"), py::arg("first_lane"),
           py::arg("key"), py::arg("length"), py::arg("turns"), py::arg("constants"), py::arg("weights"),
           py::arg("searches"), py::arg("by_weight"), py::arg("nodes"))
      .def("negatives", &WalkEngine::negatives, py::arg("first_lane"), py::arg("key"), py::arg("walkers"),
           py::arg("count"), py::arg("bound"), py::arg("out"))
      .def("set_copies", &WalkEngine::set_copies, py::arg("copies"), py::arg("most"))
      .def("sift_by", &WalkEngine::sift_by, py::arg("words"));
  m.def("walk_cells", &walk_cells, py::arg("indptr"), py::arg("indices"), py::arg("cells"), py::arg("out"),
        py::arg("num_threads"));
  m.def("filter_words", [](int64_t num_edges) { return filter_words(num_edges); }, py::arg("num_edges"));
}

}  // namespace loader
