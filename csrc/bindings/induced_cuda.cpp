// Exports the edges among given vertices on a GPU, in three steps: Python makes the sums between them.
#include "bindings/gpu.h"
#include "bindings/induced.h"
#include "induced/cuda/induced.h"

namespace loader {
namespace {

// Puts one step on a stream. `memory`: (keys, places, told, begins, ends), of the steps behind the first one
// also (kept, sums), of the last one also (sources, rows, edges).
void induced_step(const py::tuple& lists, int64_t num_ids, const py::object& nodes, const py::object& sets,
                  const py::object& rows, const py::object& of_rows, int64_t num_sets,
                  const py::tuple& memory, int64_t entries, int64_t edges, int device, uintptr_t stream) {
  if (memory.size() != 5 && memory.size() != 7 && memory.size() != 10)
    throw py::value_error("memory must be 5, 7 or 10 arrays");
  if (entries < 0 || edges < 0) throw py::value_error("entries and edges must not be negative");
  const InducedQuestion question(lists, num_ids, nodes, sets, rows, of_rows, num_sets, kGpu);
  question.with_types([&](const auto& asked, int64_t num_lists, int64_t) {
    using P = typename std::decay_t<decltype(asked.lists)>::Edge;
    using N = typename std::decay_t<decltype(asked.lists)>::Vertex;
    InducedCall<P, N> call{};
    call.asked = asked;
    call.num_lists = num_lists;
    call.bits = table_bits(asked.num_nodes);
    call.entries = entries;
    const auto words = [&](int i, const char* name, int64_t size) {
      return view<int64_t>(memory[i], name, size, kGpu).data;
    };
    const int64_t slots = int64_t{1} << call.bits;
    call.keys = reinterpret_cast<uint64_t*>(words(0, "keys", slots));
    call.places = view<int32_t>(memory[1], "places", slots, kGpu).data;
    call.told = reinterpret_cast<InducedTold*>(words(2, "told", sizeof(InducedTold) / sizeof(int64_t)));
    call.begins = words(3, "begins", asked.num_rows);
    call.ends = words(4, "ends", asked.num_rows + 1);
    if (memory.size() > 5) {
      call.kept =
          reinterpret_cast<uint32_t*>(view<int32_t>(memory[5], "kept", (entries + 31) / 32, kGpu).data);
      call.sums = words(6, "sums", call.chunks() + 1);
    }
    if (memory.size() > 7) {
      call.out_sources = words(7, "sources", edges);
      call.out_rows = words(8, "rows", edges);
      call.out_edges = words(9, "edges", edges);
    }
    doing("finding an induced subgraph on the GPU", [&] {
      const py::gil_scoped_release release;
      const gpu::OnDevice current(device);
      auto* const on = reinterpret_cast<gpu::Stream>(stream);
      if (memory.size() == 5)
        induced_table(call, device, on);
      else if (memory.size() == 7)
        induced_count(call, device, on);
      else
        induced_edges(call, device, on);
    });
  });
}

}  // namespace

void bind_induced_cuda(py::module_& m) {
  m.def(
      "induced_table_bits",
      [](int64_t entries) {
        if (entries < 0 || entries >= INT32_MAX)
          throw py::value_error("a table of " + std::to_string(entries) +
                                " vertices; fewer than 2**31 - 1 are possible");
        return table_bits(entries);
      },
      py::arg("entries"));
  m.attr("induced_chunk") = kInducedChunk;
  m.def("cuda_induced", &induced_step, py::arg("lists"), py::arg("num_ids"), py::arg("nodes"),
        py::arg("sets"), py::arg("rows"), py::arg("of_rows"), py::arg("num_sets"), py::arg("memory"),
        py::arg("entries"), py::arg("edges"), py::arg("device"), py::arg("stream"));
}

}  // namespace loader
