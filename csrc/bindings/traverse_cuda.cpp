// Exports the traversals on the GPU: checks what Python hands over, picks the instantiation, launches.
#include <limits>

#include "bindings/gpu.h"
#include "bindings/traverse.h"
#include "traverse/cuda/launch.h"

namespace loader {
namespace {

constexpr int64_t kMostEdges = int64_t{1} << 40;  // sums of frontiers stay within 64 bits

// Of a graph on a GPU: its lists, and how and with what memory they are traversed.
class CudaCall {
 public:
  CudaCall(const py::tuple& lists, int32_t line, py::handle memory, bool with_numbers, int device,
           StreamHandle stream)
      : lists(lists, "lists", Place(kGpu, device)), line(line), device_(device), stream_(stream_of(stream)) {
    if (line < 1) throw py::value_error("line is " + std::to_string(line) + "; it must be at least 1");
    if (this->lists.num_edges() > kMostEdges) throw py::value_error("the graph has too many edges");
    numbers_ = with_numbers;
    this->lists.with_types([&](auto edge, auto vertex) {
      using Space = TraverseSpace<decltype(edge), decltype(vertex)>;
      const int64_t bytes = Space::bytes(this->lists.num_nodes(), with_numbers);
      memory_ = view<uint8_t>(memory, "memory", bytes, Place(kGpu, device)).data;
    });
  }

  template <typename P, typename N>
  TraverseSpace<P, N> space() const {
    return TraverseSpace<P, N>::at(memory_, lists.num_nodes(), numbers_);
  }

  template <class F>
  void launch(const F& f) const {
    doing("a traversal on the GPU", [&] {
      const py::gil_scoped_release release;
      const gpu::OnDevice current(device_);
      f(device_, stream_);
    });
  }

  const TraversedLists lists;
  const int32_t line;

 private:
  const int device_;
  const gpu::Stream stream_;
  bool numbers_ = false;
  uint8_t* memory_ = nullptr;
};

int64_t memory_bytes(const py::tuple& lists, bool with_numbers) {
  const TraversedLists known(lists, "lists", kGpu);
  int64_t bytes = 0;
  known.with_types([&](auto edge, auto vertex) {
    bytes = TraverseSpace<decltype(edge), decltype(vertex)>::bytes(known.num_nodes(), with_numbers);
  });
  return bytes;
}

void bfs(const py::tuple& onward, const py::object& back, int32_t line, const py::object& sources,
         int64_t most, bool turns, const py::object& distances, const py::object& memory, int device,
         StreamHandle stream) {
  if (most < 0 || most > INT32_MAX) throw py::value_error("most is " + std::to_string(most));
  if (back.is_none() && turns) throw py::value_error("there is no `back`");
  const CudaCall call(onward, line, memory, false, device, stream);
  const TraversedLists other(back.is_none() ? onward : back.cast<py::tuple>(), "back", Place(kGpu, device));
  other.check_like(call.lists);
  call.lists.with_types([&](auto edge, auto vertex) {
    using P = decltype(edge);
    using N = decltype(vertex);
    const auto from = view<const N>(sources, "sources", -1, Place(kGpu, device));
    const BfsCall<P, N> kernel_call{
        call.lists.lists<P, N>(),
        other.lists<P, N>(),
        call.line,
        from.data,
        from.size,
        static_cast<int32_t>(most),
        turns,
        view<int32_t>(distances, "distances", call.lists.num_nodes(), Place(kGpu, device)).data,
        call.space<P, N>()};
    call.launch([&](int on, gpu::Stream in) { bfs_on_gpu(kernel_call, on, in); });
  });
}

void sssp(const py::tuple& onward, const py::object& weights, int32_t line, const py::object& sources,
          double delta, const py::object& least_weight, const py::object& lengths, const py::object& memory,
          int device, StreamHandle stream) {
  if (!(delta > 0)) throw py::value_error("delta is " + std::to_string(delta) + "; it must be above 0");
  const CudaCall call(onward, line, memory, false, device, stream);
  call.lists.with_types([&](auto edge, auto vertex) {
    using P = decltype(edge);
    using N = decltype(vertex);
    with_weight_type(weights, [&](auto weight) {
      using W = decltype(weight);
      const auto from = view<const N>(sources, "sources", -1, Place(kGpu, device));
      W least{};
      if constexpr (std::is_integral_v<W>)
        least = static_cast<W>(least_weight.cast<int64_t>());
      else
        least = static_cast<W>(least_weight.cast<double>());
      auto* const to = view<W>(lengths, "lengths", call.lists.num_nodes(), Place(kGpu, device)).data;
      const SsspCall<P, N, W> kernel_call{
          call.lists.lists<P, N>(),
          gpu_view<const W>(weights, "weights", call.lists.num_edges(), device).data,
          call.line,
          from.data,
          from.size,
          static_cast<W>(delta),
          std::numeric_limits<W>::max() / 4,
          least,
          reinterpret_cast<typename Length<W>::Bits*>(to),
          call.space<P, N>()};
      call.launch([&](int on, gpu::Stream in) { sssp_on_gpu(kernel_call, on, in); });
    });
  });
}

void components(const py::tuple& lists, bool symmetric, int32_t line, const py::object& labels,
                const py::object& memory, int device, StreamHandle stream) {
  const CudaCall call(lists, line, memory, false, device, stream);
  call.lists.with_types([&](auto edge, auto vertex) {
    using P = decltype(edge);
    using N = decltype(vertex);
    const ComponentsCall<P, N> kernel_call{
        call.lists.lists<P, N>(), call.line, symmetric,
        view<N>(labels, "labels", call.lists.num_nodes(), Place(kGpu, device)).data, call.space<P, N>()};
    call.launch([&](int on, gpu::Stream in) { components_on_gpu(kernel_call, on, in); });
  });
}

void pagerank(const py::tuple& back, uint64_t damping, const py::object& own, uint64_t close,
              int64_t max_iter, int32_t line, const py::object& ranks, const py::object& memory, int device,
              StreamHandle stream) {
  const CudaCall call(back, line, memory, true, device, stream);
  const int64_t n = call.lists.num_nodes();
  const RankLaw law =
      checked_law(damping, n, close, max_iter,
                  own.is_none() ? nullptr : view<const int64_t>(own, "own", n, Place(kGpu, device)).data);
  call.lists.with_types([&](auto edge, auto vertex) {
    using P = decltype(edge);
    using N = decltype(vertex);
    const RankCall<P, N> kernel_call{call.lists.lists<P, N>(), call.line, law,
                                     view<double>(ranks, "ranks", n, Place(kGpu, device)).data,
                                     call.space<P, N>()};
    call.launch([&](int on, gpu::Stream in) { pagerank_on_gpu(kernel_call, on, in); });
  });
}

}  // namespace

void bind_traverse_cuda(py::module_& m) {
  static_assert(offsetof(GridState, result) == 8);
  m.def("traverse_memory", &memory_bytes, py::arg("lists"), py::arg("with_numbers"));
  m.def("traverse_bfs_cuda", &bfs, py::arg("onward"), py::arg("back"), py::arg("line"), py::arg("sources"),
        py::arg("most"), py::arg("turns"), py::arg("distances"), py::arg("memory"), py::arg("device"),
        py::arg("stream"));
  m.def("traverse_sssp_cuda", &sssp, py::arg("onward"), py::arg("weights"), py::arg("line"),
        py::arg("sources"), py::arg("delta"), py::arg("least_weight"), py::arg("lengths"), py::arg("memory"),
        py::arg("device"), py::arg("stream"));
  m.def("traverse_components_cuda", &components, py::arg("lists"), py::arg("symmetric"), py::arg("line"),
        py::arg("labels"), py::arg("memory"), py::arg("device"), py::arg("stream"));
  m.def("traverse_pagerank_cuda", &pagerank, py::arg("back"), py::arg("damping"), py::arg("own"),
        py::arg("close"), py::arg("max_iter"), py::arg("line"), py::arg("ranks"), py::arg("memory"),
        py::arg("device"), py::arg("stream"));
}

}  // namespace loader
