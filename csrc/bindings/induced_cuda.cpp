// Exports the edges among given vertices on a GPU.
#include <functional>

#include "bindings/gpu.h"
#include "bindings/induced.h"
#include "induced/cuda/induced.h"

namespace loader {
namespace {

// Lays the arrays but for the edges out in `memory` (null to learn the size only), what is 0 at first in
// front, and returns the number of words that they take.
template <typename P, typename N>
int64_t induced_lay_out(InducedCall<P, N>& call, int64_t* memory) {
  int64_t used = 0;
  const auto take = [&](auto*& array, int64_t words) {
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(memory + used);
    used += words;
  };
  const int64_t slots = int64_t{1} << call.bits, tiles = induced_tiles(call.room);
  take(call.report, sizeof(InducedReport) / sizeof(int64_t));
  take(call.keys, slots);
  take(call.known, slots / 16);
  take(call.places, slots / 2);
  take(call.begins, call.asked.num_rows);
  take(call.firsts, call.asked.num_rows);
  take(call.list_sums, call.blocks_of_lists());
  take(call.found_bits, (call.room + 63) / 64);
  take(call.chunk_sums, tiles * kInducedWarps);
  take(call.tile_sums, tiles);
  return used;
}

// A search: its kernels are on the stream once it is made. After the host has read the report, `write` puts
// the writing on the same stream.
class CudaInducedEdges {
 public:
  // memory: [induced_words(...)] int64, whose first `report_words` are the report.
  CudaInducedEdges(const py::tuple& lists, int64_t num_ids, const py::object& nodes, const py::object& sets,
                   const py::object& rows, const py::object& of_rows, int64_t num_sets, py::object memory,
                   int64_t room, int device, StreamHandle stream)
      : question_(lists, num_ids, nodes, sets, rows, of_rows, num_sets, Place(kGpu, device)),
        memory_(std::move(memory)),
        place_(kGpu, device) {
    if (room < 0) throw py::value_error("room must not be negative");
    question_.with_types([&](const auto& asked, int64_t num_lists, int64_t) {
      using P = typename std::decay_t<decltype(asked.lists)>::Edge;
      using N = typename std::decay_t<decltype(asked.lists)>::Vertex;
      InducedCall<P, N> call{};
      call.asked = asked;
      call.num_lists = num_lists;
      call.room = room;
      call.bits = table_bits(asked.num_nodes);
      const auto words = view<int64_t>(memory_, "memory", induced_lay_out(call, nullptr), place_);
      induced_lay_out(call, words.data);
      on_gpu(device, [&] { find_induced(call, device, stream_of(stream)); });
      write_ = [call, device, stream](int64_t entries, int64_t edges, int64_t* out) mutable {
        call.out_sources = out;
        call.out_rows = out + edges;
        call.out_edges = out + 2 * edges;
        on_gpu(device, [&] { write_induced(call, entries, device, stream_of(stream)); });
      };
    });
  }

  // out: [3, edges], to become the sources, the lists and the places of the edges.
  void write(const py::object& out, int64_t entries, int64_t edges) {
    if (entries < 0 || edges < 0) throw py::value_error("entries and edges must not be negative");
    write_(entries, edges, view<int64_t>(out, "out", 3 * edges, place_).data);
  }

 private:
  template <typename F>
  static void on_gpu(int device, const F& f) {
    doing("finding an induced subgraph on the GPU", [&] {
      const py::gil_scoped_release release;
      const gpu::OnDevice current(device);
      f();
    });
  }

  const InducedQuestion question_;
  const py::object memory_;
  const Place place_;
  std::function<void(int64_t entries, int64_t edges, int64_t* out)> write_;
};

// Number of words of `memory`, for these numbers of given vertices and asked lists, and room for entries.
int64_t induced_words(int64_t num_nodes, int64_t num_rows, int64_t room) {
  if (num_nodes < 0 || num_nodes >= INT32_MAX)
    throw py::value_error("a table of " + std::to_string(num_nodes) +
                          " nodes; fewer than 2**31 - 1 are possible");
  if (num_rows < 0 || room < 0) throw py::value_error("num_rows and room must not be negative");
  InducedCall<int64_t, int64_t> call{};
  call.asked.num_nodes = num_nodes;
  call.asked.num_rows = num_rows;
  call.room = room;
  call.bits = table_bits(num_nodes);
  return induced_lay_out(call, nullptr);
}

}  // namespace

void bind_induced_cuda(py::module_& m) {
  m.attr("induced_chunk") = kInducedChunk;
  m.attr("induced_report_words") = static_cast<int64_t>(sizeof(InducedReport) / sizeof(int64_t));
  m.def("induced_words", &induced_words, py::arg("num_nodes"), py::arg("num_rows"), py::arg("room"));
  py::class_<CudaInducedEdges>(m, "CudaInducedEdges")
      .def(py::init<const py::tuple&, int64_t, const py::object&, const py::object&, const py::object&,
                    const py::object&, int64_t, py::object, int64_t, int, StreamHandle>(),
           py::arg("lists"), py::arg("num_ids"), py::arg("nodes"), py::arg("sets"), py::arg("rows"),
           py::arg("of_rows"), py::arg("num_sets"), py::arg("memory"), py::arg("room"), py::arg("device"),
           py::arg("stream"))
      .def("write", &CudaInducedEdges::write, py::arg("out"), py::arg("entries"), py::arg("edges"));
}

}  // namespace loader
