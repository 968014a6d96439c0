// Exports the drawing of negative links on the CPU.
#include "bindings/links.h"

#include <string>

#include "bindings/views.h"

namespace loader {
namespace {

struct Ends {
  const int64_t* given;  // [ceil(count / each)] sources, or null
  int64_t each;          // negatives of a source that is given
  int64_t* sources;      // [count], or null with `given`
  int64_t* targets;      // [count]
  int64_t count;
};

// Lists are looked at when they are searched: to look at all of them would take longer than to draw.
template <typename P, typename N>
struct CheckedEdges {
  KnownEdges<P, N> edges;
  int64_t num_edges;

  bool has(int64_t source, int64_t target) const {
    if (edges.any()) {
      const ListOf<P> list = edges.lists.list({target});
      const int64_t begin = list.begin, end = list.end;
      if (begin < 0 || end < begin || end > num_edges)
        throw py::value_error("indptr says that the list of vertex " + std::to_string(target) + " is " +
                              std::to_string(begin) + " to " + std::to_string(end) +
                              "; lists must lie in the " + std::to_string(num_edges) + " entries of indices");
    }
    return edges.has(source, target);
  }
};

template <typename P, typename N>
void draw(const EndCounts& counts, uint64_t key, bool strict, const CheckedEdges<P, N>& known,
          const Ends& ends) {
  for (int64_t i = 0; i < ends.count; ++i) {
    const Draws draws{key, static_cast<uint64_t>(i), 0};
    if (!ends.given) {
      if (negative_pair(draws, counts, strict, known, &ends.sources[i], &ends.targets[i])) continue;
      throw py::value_error("no negative link was found in " + std::to_string(kTriesOfPair) +
                            " tries: nearly all pairs of vertices are edges; draw them with strict=False");
    }
    const int64_t source = ends.given[i / ends.each];
    ends.targets[i] = negative_target(draws, counts, strict, known, source);
    if (ends.targets[i] < 0)
      throw py::value_error(
          "vertex " + std::to_string(source) + " has an edge to every " +
          (counts.one_type ? "other vertex" : "vertex of their type") +
          ", so it has no negative link; draw them with strict=False, or leave its links out");
  }
}

template <typename P, typename N>
CheckedEdges<P, N> known_of(const py::object& indptr, const py::object& indices, int64_t num_targets) {
  const auto offsets = offsets_view<P>(indptr, "indptr", num_targets);
  const auto entries = view<const N>(indices, "indices");
  return {{offsets.data, entries.data}, entries.size};
}

void negatives(int64_t num_sources, int64_t num_targets, bool one_type, uint64_t seed, uint64_t epoch,
               uint64_t batch, const py::object& given, const py::object& sources, const py::object& targets,
               const py::object& indptr, const py::object& indices, bool strict) {
  const EndCounts counts = counts_of(num_sources, num_targets, one_type);
  const uint64_t key = batch_key(seed, epoch, batch, Purpose::kNegative);
  const auto out = view<int64_t>(targets, "targets");
  Ends ends{nullptr, 1, nullptr, out.data, out.size};
  if (given.is_none()) {
    ends.sources = view<int64_t>(sources, "sources", out.size).data;
  } else {
    const auto from = view<const int64_t>(given, "given");
    if (from.size == 0 ? out.size != 0 : out.size % from.size != 0)
      throw py::value_error("targets has " + std::to_string(out.size) +
                            " elements; it must have as many for each of the " + std::to_string(from.size) +
                            " sources");
    ends.given = from.data;
    ends.each = from.size ? out.size / from.size : 1;
    for (int64_t i = 0; i < from.size; ++i)
      if (from.data[i] < 0 || from.data[i] >= num_sources)
        throw py::value_error("seeds holds vertex " + std::to_string(from.data[i]) + "; valid ids are 0 to " +
                              std::to_string(num_sources - 1));
  }
  if (indptr.is_none()) return draw(counts, key, strict, CheckedEdges<int64_t, int64_t>{{}, 0}, ends);
  const bool wide_edges = dtype_of(indptr) == "torch.int64", wide_nodes = dtype_of(indices) == "torch.int64";
  if (wide_nodes)
    return draw(counts, key, strict, known_of<int64_t, int64_t>(indptr, indices, num_targets), ends);
  if (wide_edges)
    return draw(counts, key, strict, known_of<int64_t, int32_t>(indptr, indices, num_targets), ends);
  draw(counts, key, strict, known_of<int32_t, int32_t>(indptr, indices, num_targets), ends);
}

}  // namespace

void bind_links(py::module_& m) {
  m.def("negatives", &negatives, py::arg("num_sources"), py::arg("num_targets"), py::arg("one_type"),
        py::arg("seed"), py::arg("epoch"), py::arg("batch"), py::arg("given"), py::arg("sources"),
        py::arg("targets"), py::arg("indptr"), py::arg("indices"), py::arg("strict"));
}

}  // namespace loader
