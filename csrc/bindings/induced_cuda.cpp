// Exports the edges among given vertices on a GPU, in three steps: Python makes the sums between them.
#include "bindings/gpu.h"
#include "bindings/induced.h"
#include "induced/cuda/induced.h"

namespace loader {
namespace {

// Puts one step on a stream. `memory` has a part for each step so far, in one piece of words, as a view of
// each array would take the host longer than the step: of the first (keys, report, known; zeros), and
// (places, begins, ends); of the second (kept, sums); of the last (sources, rows, edges).
void induced_step(const py::tuple& lists, int64_t num_ids, const py::object& nodes, const py::object& sets,
                  const py::object& rows, const py::object& of_rows, int64_t num_sets,
                  const py::tuple& memory, int64_t entries, int64_t edges, int device, uintptr_t stream) {
  if (memory.size() < 2 || memory.size() > 4) throw py::value_error("memory must be 2, 3 or 4 arrays");
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
    constexpr int64_t report = sizeof(InducedReport) / sizeof(int64_t);
    const int64_t slots = int64_t{1} << call.bits, lists_asked = asked.num_rows;
    int64_t* const zeros = words(0, "zeros", slots + report + (slots << kKnownBits) / 64);
    call.keys = reinterpret_cast<uint64_t*>(zeros);
    call.report = reinterpret_cast<InducedReport*>(zeros + slots);
    call.known = reinterpret_cast<uint32_t*>(zeros + slots + report);
    int64_t* const found = words(1, "found", slots / 2 + 2 * lists_asked + 1);
    call.places = reinterpret_cast<int32_t*>(found);
    call.begins = found + slots / 2;
    call.ends = call.begins + lists_asked;
    if (memory.size() > 2) {
      const int64_t found_words = (entries + 63) / 64;
      int64_t* const counted = words(2, "counted", found_words + call.chunks() + 1);
      call.found_bits = reinterpret_cast<uint32_t*>(counted);
      call.sums = counted + found_words;
    }
    if (memory.size() > 3) {
      call.out_sources = words(3, "out", 3 * edges);
      call.out_rows = call.out_sources + edges;
      call.out_edges = call.out_rows + edges;
    }
    doing("finding an induced subgraph on the GPU", [&] {
      const py::gil_scoped_release release;
      const gpu::OnDevice current(device);
      auto* const on = reinterpret_cast<gpu::Stream>(stream);
      if (memory.size() == 2)
        induced_table(call, device, on);
      else if (memory.size() == 3)
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
                                " nodes; fewer than 2**31 - 1 are possible");
        return table_bits(entries);
      },
      py::arg("entries"));
  m.attr("induced_chunk") = kInducedChunk;
  m.def("cuda_induced", &induced_step, py::arg("lists"), py::arg("num_ids"), py::arg("nodes"),
        py::arg("sets"), py::arg("rows"), py::arg("of_rows"), py::arg("num_sets"), py::arg("memory"),
        py::arg("entries"), py::arg("edges"), py::arg("device"), py::arg("stream"));
}

}  // namespace loader
