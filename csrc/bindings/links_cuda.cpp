// Exports mini-batches of links on the GPU.
#include <pybind11/stl.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/gpu.h"
#include "bindings/links.h"
#include "links/cuda/links.h"

namespace loader {
namespace {

using Ids = std::pair<int64_t, int64_t>;

// Calls `f` with values of the types of indptr and indices.
template <typename F>
void with_types(bool wide_edges, bool wide_nodes, const F& f) {
  if (wide_nodes)
    f(int64_t{}, int64_t{});
  else if (wide_edges)
    f(int64_t{}, int32_t{});
  else
    f(int32_t{}, int32_t{});
}

// Finds the ends of links among the nodes of one graph.
class CudaLinkEngine {
 public:
  // `sources` and `targets` are the ids of the nodes that links may join, from the first to below the second
  // number. `indptr` and `indices` are of the edges that strict negatives must not be, each list ascending
  // and numbered within the types, or None.
  CudaLinkEngine(Ids sources, Ids targets, int64_t num_nodes, py::object indptr, py::object indices,
                 int device)
      : counts_(
            counts_of(sources.second - sources.first, targets.second - targets.first, sources == targets)),
        first_source_(sources.first),
        first_target_(targets.first),
        num_nodes_(num_nodes),
        indptr_(std::move(indptr)),
        indices_(std::move(indices)),
        device_(device) {
    if (indptr_.is_none()) return;
    wide_nodes_ = has_dtype<int64_t>(indices_);
    wide_edges_ = has_dtype<int64_t>(indptr_);
    with_types(wide_edges_, wide_nodes_, [&](auto edge, auto vertex) {
      known_edges_ =
          gpu_view<const decltype(edge)>(indptr_, "indptr", int64_t{counts_.targets} + 1, device_).data;
      known_nodes_ = gpu_view<const decltype(vertex)>(indices_, "indices", -1, device_).data;  // [num_edges]
    });
  }

  // With `seeds`, each end is written there once.
  void ends(py::handle pairs, int64_t negatives, int64_t each, uint64_t key, bool strict, py::handle ends,
            py::handle seeds, py::handle local, py::handle outcome, StreamHandle stream) {
    if (negatives < 0 || each < 0)
      throw py::value_error("negatives is " + std::to_string(negatives) + " and each is " +
                            std::to_string(each) + "; both must be at least 0");
    const Place place{kGpu, device_};
    const auto links = integers_view(pairs, "pairs", -1, place);  // [links, 2]
    if (links.size % 2)
      throw py::value_error("pairs has " + std::to_string(links.size) +
                            " elements; it must have 2 of each link");
    LinkEnds all{links.data, links.wide,    links.size / 2, negatives, each,   key,
                 counts_,    first_source_, first_target_,  strict,    nullptr};
    const int64_t count = all.count();
    all.out = view<int64_t>(ends, "ends", count, place).data;  // [count], see LinkEnds
    const bool once = !seeds.is_none();
    if (once && (count < 1 || count > kMostSorted))
      throw py::value_error(std::to_string(count) + " ends are sorted; it must be 1 to " +
                            std::to_string(kMostSorted));
    IntegersView seed_ids{};
    int64_t* places = nullptr;
    DistinctEnds* report = nullptr;
    if (once) {
      static_assert(sizeof(DistinctEnds) == 2 * sizeof(int64_t));
      seed_ids = integers_view(seeds, "seeds", count, place);                                      // [count]
      places = view<int64_t>(local, "local", count, place).data;                                   // [count]
      report = reinterpret_cast<DistinctEnds*>(view<int64_t>(outcome, "outcome", 2, place).data);  // [2]
    }
    doing("finding the ends of links on the GPU", [&] {
      const gpu::OnDevice current(device_);
      with_types(wide_edges_, wide_nodes_, [&](auto edge, auto vertex) {
        using P = decltype(edge);
        using N = decltype(vertex);
        find_ends(
            all, KnownEdges<P, N>{{static_cast<const P*>(known_edges_), static_cast<const N*>(known_nodes_)}},
            device_, stream_of(stream));
      });
      if (!once) return;
      const auto keep = [&](auto vertex) {
        distinct_ends(all.out, count, num_nodes_, static_cast<decltype(vertex)*>(seed_ids.data), places,
                      report, device_, stream_of(stream));
      };
      seed_ids.wide ? keep(int64_t{}) : keep(int32_t{});
    });
  }

 private:
  EndCounts counts_;
  int64_t first_source_, first_target_;
  int64_t num_nodes_;
  py::object indptr_, indices_;
  int device_;
  bool wide_edges_ = false, wide_nodes_ = false;
  const void* known_edges_ = nullptr;
  const void* known_nodes_ = nullptr;
};

// Of a hop: indptr or None, sources, destinations or None, and where the positions go, of the type of indptr.
using Hop = std::tuple<py::object, py::object, py::object, py::object>;

// The same, looked at, of places P and vertices N.
struct HopView {
  const void *indptr, *sources, *destinations;
  int64_t most;  // edges
  void* gone;
  bool wide_edges, wide_nodes;
};

template <typename P, typename N>
void view_hop(const Hop& hop, int64_t seeds, const Place& place, HopView* found) {
  const auto& [indptr, sources, destinations, gone] = hop;
  if (indptr.is_none() == destinations.is_none())
    throw py::value_error("a hop has either indptr or destinations; the other one must be None");
  const auto from = view<const N>(sources, "sources of a hop", -1, place);  // [edges]
  const auto positions = view<P>(gone, "gone", -1, place);                  // [edges, or fewer]
  // Edges to the seeds come first. Their number is the length of `gone`, or indptr has it on the GPU.
  if (destinations.is_none() ? positions.size != from.size : positions.size > from.size)
    throw py::value_error("gone has " + std::to_string(positions.size) + " elements; the hop has " +
                          std::to_string(from.size) + " edges");
  *found = {nullptr,        from.data,         nullptr,          positions.size,
            positions.data, found->wide_edges, found->wide_nodes};
  if (destinations.is_none()) {
    const auto lists = view<const P>(indptr, "indptr", -1, place);  // [num_dst + 1], of the seeds and others
    if (lists.size < seeds + 1)
      throw py::value_error("indptr has " + std::to_string(lists.size) + " elements; with " +
                            std::to_string(seeds) + " seeds it must have " + std::to_string(seeds + 1));
    found->indptr = lists.data;
  } else {
    found->destinations = view<const N>(destinations, "destinations", from.size, place).data;  // [edges]
  }
}

// `slots` are -1 and `found` are 0.
void find_links(py::handle slots, int64_t seeds, py::handle sources, py::handle targets, bool reverse,
                const std::vector<Hop>& hops, py::handle found, int device, StreamHandle stream) {
  const Place place{kGpu, device};
  const auto free = view<int64_t>(slots, "slots", -1, place);                             // [capacity]
  const auto from = view<const int64_t>(sources, "sources", -1, place);                   // [links]
  const auto* const to = view<const int64_t>(targets, "targets", from.size, place).data;  // [links]
  auto* const counts = reinterpret_cast<unsigned long long*>(
      view<int64_t>(found, "found", static_cast<int64_t>(hops.size()), place).data);  // [hops]
  if (seeds < 0) throw py::value_error("seeds is " + std::to_string(seeds) + "; it must be at least 0");
  const int64_t needed = (reverse ? 2 : 1) * from.size;
  if (free.size <= needed || free.size & (free.size - 1))
    throw py::value_error("slots has " + std::to_string(free.size) +
                          " elements; it must have a power of two above " + std::to_string(needed));
  std::vector<HopView> views;
  views.reserve(hops.size());
  for (const Hop& hop : hops) {
    HopView one{};
    one.wide_edges = has_dtype<int64_t>(std::get<3>(hop));
    one.wide_nodes = has_dtype<int64_t>(std::get<1>(hop));
    with_types(one.wide_edges, one.wide_nodes, [&](auto edge, auto vertex) {
      view_hop<decltype(edge), decltype(vertex)>(hop, seeds, place, &one);
    });
    views.push_back(one);
  }
  const EdgeSet set{reinterpret_cast<unsigned long long*>(free.data), static_cast<uint64_t>(free.size) - 1,
                    seeds};
  doing("finding links on the GPU", [&] {
    const gpu::OnDevice current(device);
    const gpu::Stream on = stream_of(stream);
    insert_edges(set, from.data, to, from.size, reverse, device, on);
    for (size_t h = 0; h < views.size(); ++h) {
      const HopView& hop = views[h];
      with_types(hop.wide_edges, hop.wide_nodes, [&](auto edge, auto vertex) {
        using P = decltype(edge);
        using N = decltype(vertex);
        find_edges<P, N>(set, static_cast<const P*>(hop.indptr), static_cast<const N*>(hop.sources),
                         static_cast<const N*>(hop.destinations), hop.most, static_cast<P*>(hop.gone),
                         counts + h, device, on);
      });
    }
  });
}

// An array: where it is read, and where it is written.
using Array = std::pair<py::object, py::object>;

// Copies `arrays` without the entries at the ascending positions `gone`, and corrects `indptr`, if there is
// one, which has the type of the positions.
void drop(const std::vector<Array>& arrays, const std::optional<Array>& indptr, py::handle gone, int device,
          StreamHandle stream) {
  const Place place{kGpu, device};
  const auto positions = integers_view(gone, "gone", -1, place);  // [num_gone]
  const auto same_type = [](const IntegersView& a, const IntegersView& b, const char* name,
                            const char* other) {
    if (a.wide != b.wide)
      throw py::type_error(std::string(name) + " has dtype torch.int" + (a.wide ? "64" : "32") +
                           "; it must be that of " + other + ", torch.int" + (b.wide ? "64" : "32"));
  };
  std::vector<std::pair<IntegersView, IntegersView>> array_views;
  array_views.reserve(arrays.size());
  for (const auto& [in, out] : arrays) {
    const auto from = integers_view(in, "array", -1, place);  // [entries]
    if (from.size < positions.size)
      throw py::value_error("array has " + std::to_string(from.size) + " elements, and " +
                            std::to_string(positions.size) + " are left out; it must have as many");
    const auto to = integers_view(out, "out", from.size - positions.size, place);  // [entries - num_gone]
    same_type(to, from, "out", "the array");
    array_views.emplace_back(from, to);
  }
  IntegersView lists{}, corrected{};
  if (indptr) {
    lists = integers_view(indptr->first, "indptr", -1, place);                      // [lists + 1]
    corrected = integers_view(indptr->second, "out of indptr", lists.size, place);  // [lists + 1]
    same_type(lists, positions, "indptr", "gone");
    same_type(corrected, positions, "out of indptr", "gone");
  }
  doing("leaving out links on the GPU", [&] {
    const gpu::OnDevice current(device);
    const gpu::Stream on = stream_of(stream);
    const auto with = [&](auto position) {
      using P = decltype(position);
      const auto* const removed = static_cast<const P*>(positions.data);
      const auto copy = [&](auto entry, const IntegersView& from, const IntegersView& to) {
        using T = decltype(entry);
        drop_entries(static_cast<const T*>(from.data), from.size, removed, positions.size,
                     static_cast<T*>(to.data), device, on);
      };
      for (const auto& [from, to] : array_views)
        from.wide ? copy(int64_t{}, from, to) : copy(int32_t{}, from, to);
      if (indptr)
        drop_from_lists(static_cast<const P*>(lists.data), lists.size, removed, positions.size,
                        static_cast<P*>(corrected.data), device, on);
    };
    positions.wide ? with(int64_t{}) : with(int32_t{});
  });
}

}  // namespace

void bind_links_cuda(py::module_& m) {
  m.attr("most_sorted_ends") = kMostSorted;
  py::class_<CudaLinkEngine>(m, "CudaLinkEngine")
      .def(py::init<Ids, Ids, int64_t, py::object, py::object, int>(), py::arg("sources"), py::arg("targets"),
           py::arg("num_nodes"), py::arg("indptr"), py::arg("indices"), py::arg("device"))
      .def("ends", &CudaLinkEngine::ends, py::arg("pairs"), py::arg("negatives"), py::arg("each"),
           py::arg("key"), py::arg("strict"), py::arg("ends"), py::arg("seeds"), py::arg("local"),
           py::arg("outcome"), py::arg("stream"));
  m.def("cuda_find_links", &find_links, py::arg("slots"), py::arg("seeds"), py::arg("sources"),
        py::arg("targets"), py::arg("reverse"), py::arg("hops"), py::arg("found"), py::arg("device"),
        py::arg("stream"));
  m.def("cuda_drop", &drop, py::arg("arrays"), py::arg("indptr"), py::arg("gone"), py::arg("device"),
        py::arg("stream"));
}

}  // namespace loader
