// Exports the edges among given vertices on the CPU.
#include "bindings/induced.h"

#include <algorithm>

#include "bindings/unlocked.h"
#include "induced/cpu/induced.h"
#include "parallel.h"

namespace loader {
namespace {

class InducedEdges {
 public:
  InducedEdges(const py::tuple& lists, int64_t num_ids, const py::object& nodes, const py::object& sets,
               const py::object& rows, const py::object& of_rows, int64_t num_sets, int64_t num_threads) {
    check_num_threads(num_threads);
    const InducedQuestion question(lists, num_ids, nodes, sets, rows, of_rows, num_sets, "cpu");
    question.with_types([&](const auto& asked, int64_t num_lists, int64_t num_edges) {
      const Unlocked unlocked;
      wrong_ = first_wrong(asked, num_lists);
      if (wrong_ >= 0) return;
      ThreadPool pool(static_cast<int>(num_threads));
      found_ = induced_on_cpu(asked, num_edges, pool);
    });
    for (const InducedPart& part : found_.parts) num_edges_ += static_cast<int64_t>(part.edges.size());
  }

  int64_t num_edges() const { return num_edges_; }
  int64_t repeated() const { return found_.repeated; }
  int64_t wrong() const { return wrong_; }

  void write(const py::object& sources, const py::object& rows, const py::object& edges) const {
    auto *to_sources = view<int64_t>(sources, "sources", num_edges_).data,
         *to_rows = view<int64_t>(rows, "rows", num_edges_).data,
         *to_edges = view<int64_t>(edges, "edges", num_edges_).data;
    const Unlocked unlocked;
    for (const InducedPart& part : found_.parts) {
      to_sources = std::copy(part.sources.begin(), part.sources.end(), to_sources);
      to_rows = std::copy(part.rows.begin(), part.rows.end(), to_rows);
      to_edges = std::copy(part.edges.begin(), part.edges.end(), to_edges);
    }
  }

 private:
  // The first place of a vertex that is none, or whose set is none; or -1. Throws std::invalid_argument for a
  // list that is none, or a list's set.
  template <typename Asked>
  static int64_t first_wrong(const Asked& asked, int64_t num_lists) {
    for (int64_t i = 0; i < asked.num_nodes; ++i)
      if (!asked.is_given(i)) return i;
    for (int64_t i = 0; i < asked.num_rows; ++i)
      if (asked.row(i) < 0 || asked.row(i) >= num_lists)
        throw std::invalid_argument("list " + std::to_string(asked.row(i)) + " is none of " +
                                    std::to_string(num_lists));
    for (int64_t i = 0; asked.of_rows && i < asked.num_rows; ++i)
      if (asked.of_rows[i] < 0 || asked.of_rows[i] >= asked.num_sets)
        throw std::invalid_argument("set " + std::to_string(asked.of_rows[i]) + " is none of " +
                                    std::to_string(asked.num_sets));
    return -1;
  }

  InducedFound found_;
  int64_t num_edges_ = 0, wrong_ = -1;
};

}  // namespace

void bind_induced(py::module_& m) {
  py::class_<InducedEdges>(m, "InducedEdges")
      .def(py::init<const py::tuple&, int64_t, const py::object&, const py::object&, const py::object&,
                    const py::object&, int64_t, int64_t>(),
           py::arg("lists"), py::arg("num_ids"), py::arg("nodes"), py::arg("sets"), py::arg("rows"),
           py::arg("of_rows"), py::arg("num_sets"), py::arg("num_threads"))
      .def_property_readonly("num_edges", &InducedEdges::num_edges)
      .def_property_readonly("repeated", &InducedEdges::repeated)
      .def_property_readonly("wrong", &InducedEdges::wrong)
      .def("write", &InducedEdges::write, py::arg("sources"), py::arg("rows"), py::arg("edges"));
}

}  // namespace loader
