// Exports the walks on the GPU: checks what Python hands over, picks the instantiation, launches.
#include <pybind11/stl.h>

#include <type_traits>
#include <utility>

#include "bindings/gpu.h"
#include "bindings/walks.h"
#include "walks/cuda/custom.h"
#include "walks/cuda/launch.h"

namespace loader {
namespace {

// The lists of one graph in the memory of a GPU. The caller makes one call at a time.
class CudaWalkEngine {
 public:
  CudaWalkEngine(py::object indptr, py::object indices, py::object sorted, py::object cells, int64_t groups,
                 py::object bad, int device)
      : arrays_(std::move(indptr), std::move(indices), std::move(sorted), std::move(cells), groups,
                Place(kGpu, device)),
        bad_(std::move(bad)),
        bad_at_(gpu_view<int64_t>(bad_, "bad", 2, device).data),
        device_(device) {}

  void walk(py::handle starts, uint64_t first_lane, uint64_t key, int64_t length, uint64_t stop_below,
            uint64_t home_below, const Acceptance& accept, const std::vector<int64_t>& path,
            py::handle vertices, py::handle places, StreamHandle stream) {
    const auto from = integers_view(starts, "starts", -1, place());  // [count]
    arrays_.with_types([&](auto edge, auto vertex) {
      using P = decltype(edge);
      using N = decltype(vertex);
      auto out = out_of<P, N>(from.size, length, vertices, places);
      out.first_lane = first_lane;
      arrays_.with_law<P, N>({key, length, stop_below, home_below, accept, path}, out,
                             [&](const auto& law, const auto& lists, const WalkOut<P, N>& to) {
                               launch("walking on the GPU", stream, [&](gpu::Stream on) {
                                 walk_on_gpu(law, lists, to, starts_of(from), device_, on);
                               });
                             });
    });
  }

  // One step of the same walks, of the first order: `order` are the walkers. The steps before it were taken.
  void step(py::handle starts, uint64_t key, int64_t length, uint64_t stop_below, uint64_t home_below,
            py::handle order, int64_t step, py::handle vertices, py::handle places, StreamHandle stream) {
    if (step < 0 || step >= length)
      throw py::value_error("step is " + std::to_string(step) + " of " + std::to_string(length));
    const auto from = integers_view(starts, "starts", -1, place());                            // [count]
    const auto* const walkers = view<const int64_t>(order, "order", from.size, place()).data;  // [count]
    arrays_.with_types([&](auto edge, auto vertex) {
      using P = decltype(edge);
      using N = decltype(vertex);
      arrays_.with_law<P, N>(
          {key, length, stop_below, home_below, {}, {}}, out_of<P, N>(from.size, length, vertices, places),
          [&](const auto& law, const auto& lists, const WalkOut<P, N>& to) {
            using Law = std::decay_t<decltype(law)>;
            using Lists = std::decay_t<decltype(lists)>;
            if constexpr (Law::kSecond || !std::is_same_v<Lists, WalkLists<P, N>>)
              throw py::value_error("step by step there are walks of the first order, without a metapath");
            else
              launch("walking on the GPU", stream, [&](gpu::Stream on) {
                step_on_gpu(law, lists, to, starts_of(from), walkers, static_cast<uint32_t>(step), device_,
                            on);
              });
          });
    });
  }

  // Walks by a user's function, which `header` has. What it does wrong is written to `fault`, in memory
  // that the host sees, as WalkEngine::walk_by gives it; `reported` is 0 until then.
  void walk_by(const std::string& header, py::handle starts, uint64_t first_lane, uint64_t key,
               int64_t length, int64_t turns, const std::vector<int64_t>& constants,
               const py::object& weights, bool searches, bool by_weight, py::handle vertices,
               const py::object& fault, const py::object& reported, StreamHandle stream) {
    static_assert(sizeof(Fault) == 5 * sizeof(int64_t));
    const CustomWalkCall call{key, length, turns, constants, weights, searches, by_weight};
    const CustomRules rules = checked_rules(call);
    const auto from = integers_view(starts, "starts", -1, place());  // [count]
    auto* const faults = reinterpret_cast<Fault*>(gpu_view<int64_t>(fault, "fault", 5, device_).data);  // [5]
    int32_t* const claimed = view<int32_t>(reported, "reported", 1, place()).data;                      // [1]
    arrays_.with_types([&](auto edge, auto vertex) {
      using P = decltype(edge);
      using N = decltype(vertex);
      const CustomLists<P, N> lists = arrays_.custom<P, N>(call);
      auto out = out_of<P, N>(from.size, length, vertices, py::none());
      out.first_lane = first_lane;
      out.length = checked_length(length);
      launch("walking on the GPU", stream, [&](gpu::Stream on) {
        walk_custom_on_gpu(header, rules, lists, out, starts_of(from), faults, claimed, device_, on);
      });
    });
  }

  void negatives(uint64_t first_lane, uint64_t key, int64_t walkers, int64_t count, int64_t bound,
                 const py::object& out, StreamHandle stream) {
    arrays_.with_types([&](auto, auto vertex) {
      check_negatives(bound, walkers, count, sizeof(vertex));
      const Negatives law{key, static_cast<uint32_t>(bound)};
      const auto memory = view<decltype(vertex)>(out, "out", walkers * count, place());  // [walkers, count]
      launch("drawing negatives on the GPU", stream, [&](gpu::Stream on) {
        draw_negatives_on_gpu(law, first_lane, walkers, count, memory.data, device_, on);
      });
    });
  }

  void sift_by(const py::object& words, StreamHandle stream) {
    const EdgeFilter filter = arrays_.filter_in(words);
    arrays_.with_types([&](auto edge, auto vertex) {
      const auto lists = arrays_.plain<decltype(edge), decltype(vertex)>();
      launch("making a filter on the GPU", stream, [&](gpu::Stream on) {
        fill_filter_on_gpu(lists, arrays_.num_nodes(), arrays_.num_edges(), filter, device_, on);
      });
    });
    arrays_.sift_by(filter);
  }

  // Throws what kernels that are done have reported, once.
  void check() {
    volatile int64_t* const bad = bad_at_;
    if (bad[0] == 0) return;
    const int64_t vertex = bad[1];
    bad[0] = 0;
    throw py::value_error(bad_start(vertex, arrays_.num_nodes()));
  }

  void set_copies(const py::object& copies, const py::object& most) { arrays_.set_copies(copies, most); }

 private:
  Place place() const { return {kGpu, device_}; }

  WalkStarts starts_of(const IntegersView& starts) const {
    return {starts.data, starts.wide, arrays_.num_nodes(), bad_at_};
  }

  // Where walks are written: `vertices` [count, length + 1], and `places` [count, length] or None.
  template <typename P, typename N>
  WalkOut<P, N> out_of(int64_t count, int64_t length, py::handle vertices, py::handle places) const {
    checked_length(length);
    WalkOut<P, N> out{};
    out.count = count;
    out.vertices = view<N>(vertices, "nodes", count * (length + 1), place()).data;
    out.places = optional_view<P>(places, "places", count * length, place());
    return out;
  }

  template <class F>
  void launch(const char* what, StreamHandle stream, const F& f) {
    doing(what, [&] {
      const py::gil_scoped_release release;
      const gpu::OnDevice current(device_);
      f(stream_of(stream));
    });
  }

  WalkArrays arrays_;
  const py::object bad_;
  int64_t* const bad_at_;
  const int device_;
};

}  // namespace

void bind_walks_cuda(py::module_& m) {
  py::class_<CudaWalkEngine>(m, "CudaWalkEngine")
      .def(py::init<py::object, py::object, py::object, py::object, int64_t, py::object, int>(),
           py::arg("indptr"), py::arg("indices"), py::arg("sorted"), py::arg("cells"), py::arg("groups"),
           py::arg("bad"), py::arg("device"))
      .def("walk", &CudaWalkEngine::walk, py::arg("starts"), py::arg("first_lane"), py::arg("key"),
           py::arg("length"), py::arg("stop_below"), py::arg("home_below"), py::arg("accept"),
           py::arg("path"), py::arg("nodes"), py::arg("places"), py::arg("stream"))
      .def("step", &CudaWalkEngine::step, py::arg("starts"), py::arg("key"), py::arg("length"),
           py::arg("stop_below"), py::arg("home_below"), py::arg("order"), py::arg("step"), py::arg("nodes"),
           py::arg("places"), py::arg("stream"))
      .def("walk_by", &CudaWalkEngine::walk_by, py::arg("header"), py::arg("starts"), py::arg("first_lane"),
           py::arg("key"), py::arg("length"), py::arg("turns"), py::arg("constants"), py::arg("weights"),
           py::arg("searches"), py::arg("by_weight"), py::arg("nodes"), py::arg("fault"), py::arg("reported"),
           py::arg("stream"))
      .def("negatives", &CudaWalkEngine::negatives, py::arg("first_lane"), py::arg("key"), py::arg("walkers"),
           py::arg("count"), py::arg("bound"), py::arg("out"), py::arg("stream"))
      .def("set_copies", &CudaWalkEngine::set_copies, py::arg("copies"), py::arg("most"))
      .def("sift_by", &CudaWalkEngine::sift_by, py::arg("words"), py::arg("stream"))
      .def("check", &CudaWalkEngine::check);
}

}  // namespace loader
