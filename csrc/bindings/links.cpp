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
        throw py::value_error("indptr says that the list of node " + std::to_string(target) + " is " +
                              std::to_string(begin) + " to " + std::to_string(end) +
                              "; lists must lie in the " + std::to_string(num_edges) + " entries of indices");
    }
    return edges.has(source, target);
  }
};

// The nodes that may be one end of a negative. `order` has those that exist first, first; null: they are all
// there, in their own order. `counts` says how many exist for each negative; null: all.
struct Existing {
  const int64_t* counts;
  const int64_t* order;
  uint32_t all, most;  // nodes there are, and nodes there may be at any time
  const char* name;

  uint32_t count(int64_t negative) const {
    const int64_t n = counts ? counts[negative] : int64_t{most};
    if (n < 1 || n > int64_t{most})
      throw py::value_error(std::string(name) + "_counts holds " + std::to_string(n) + "; 1 to " +
                            std::to_string(most) + " nodes may exist");
    return static_cast<uint32_t>(n);
  }
  int64_t node(int64_t drawn) const {
    if (!order) return drawn;
    const int64_t v = order[drawn];
    if (v < 0 || v >= int64_t{all})
      throw py::value_error(std::string(name) + "_order holds node " + std::to_string(v) +
                            "; valid ids are 0 to " + std::to_string(int64_t{all} - 1));
    return v;
  }
};

Existing existing_of(const py::object& counts, const py::object& order, uint32_t all, int64_t negatives,
                     const char* name) {
  Existing found{nullptr, nullptr, all, all, name};
  const std::string of_counts = std::string(name) + "_counts", of_order = std::string(name) + "_order";
  if (!counts.is_none()) found.counts = view<const int64_t>(counts, of_counts.c_str(), negatives).data;
  if (order.is_none()) return found;
  const auto places = view<const int64_t>(order, of_order.c_str());
  if (places.size > int64_t{all})
    throw py::value_error(of_order + " has " + std::to_string(places.size) + " elements; there are " +
                          std::to_string(all) + " nodes");
  found.order = places.data;
  found.most = static_cast<uint32_t>(places.size);
  return found;
}

// The ends of one negative among the nodes that exist, see `EndCounts`.
struct ExistingEnds {
  const Existing &of_source, &of_target;
  uint32_t sources, targets;
  bool one_type;

  int64_t source(int64_t drawn) const { return of_source.node(drawn); }
  int64_t target(int64_t drawn) const { return of_target.node(drawn); }
  bool is_loop(int64_t source, int64_t target) const { return one_type && source == target; }
};

template <typename P, typename N>
void draw(const Existing& of_source, const Existing& of_target, bool one_type, uint64_t key, bool strict,
          const CheckedEdges<P, N>& known, const Ends& ends) {
  for (int64_t i = 0; i < ends.count; ++i) {
    const Draws draws{key, static_cast<uint64_t>(i), 0};
    const ExistingEnds counts{of_source, of_target, ends.given ? 0 : of_source.count(i), of_target.count(i),
                              one_type};
    if (!ends.given) {
      if (negative_pair(draws, counts, strict, known, &ends.sources[i], &ends.targets[i])) continue;
      throw py::value_error("no negative link was found in " + std::to_string(kTriesOfPair) +
                            " tries: nearly all pairs of nodes are edges; draw them with strict=False");
    }
    const int64_t source = ends.given[i / ends.each];
    ends.targets[i] = negative_target(draws, counts, strict, known, source);
    if (ends.targets[i] < 0)
      throw py::value_error(
          "node " + std::to_string(source) + " has an edge to every " +
          (counts.one_type ? "other node" : "node of their type") +
          (of_target.counts ? " that exists at the link's time" : "") +
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
               const py::object& indptr, const py::object& indices, bool strict,
               const py::object& source_counts, const py::object& source_order,
               const py::object& target_counts, const py::object& target_order) {
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
        throw py::value_error("seeds holds node " + std::to_string(from.data[i]) + "; valid ids are 0 to " +
                              std::to_string(num_sources - 1));
  }
  const Existing of_source = existing_of(source_counts, source_order, counts.sources, out.size, "source");
  const Existing of_target = existing_of(target_counts, target_order, counts.targets, out.size, "target");
  const auto drawn = [&](const auto& known) {
    draw(of_source, of_target, one_type, key, strict, known, ends);
  };
  if (indptr.is_none()) return drawn(CheckedEdges<int64_t, int64_t>{{}, 0});
  const bool wide_edges = has_dtype<int64_t>(indptr), wide_nodes = has_dtype<int64_t>(indices);
  if (wide_nodes) return drawn(known_of<int64_t, int64_t>(indptr, indices, num_targets));
  if (wide_edges) return drawn(known_of<int64_t, int32_t>(indptr, indices, num_targets));
  drawn(known_of<int32_t, int32_t>(indptr, indices, num_targets));
}

}  // namespace

void bind_links(py::module_& m) {
  m.def("negatives", &negatives, py::arg("num_sources"), py::arg("num_targets"), py::arg("one_type"),
        py::arg("seed"), py::arg("epoch"), py::arg("batch"), py::arg("given"), py::arg("sources"),
        py::arg("targets"), py::arg("indptr"), py::arg("indices"), py::arg("strict"),
        py::arg("source_counts") = py::none(), py::arg("source_order") = py::none(),
        py::arg("target_counts") = py::none(), py::arg("target_order") = py::none());
}

}  // namespace loader
