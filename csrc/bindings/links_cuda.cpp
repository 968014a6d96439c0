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
    wide_nodes_ = dtype_of(indices_) == "torch.int64";
    wide_edges_ = dtype_of(indptr_) == "torch.int64";
    with_types(wide_edges_, wide_nodes_, [&](auto edge, auto vertex) {
      known_edges_ = gpu_view<const decltype(edge)>(indptr_, "indptr", int64_t{counts_.targets} + 1).data;
      known_nodes_ = gpu_view<const decltype(vertex)>(indices_, "indices").data;  // [num_edges]
    });
  }

  // Addresses of what Python has just allocated: to look at tensors takes longer than a launch. `pairs` has
  // [links, 2] entries, `ends` one for each end, see LinkEnds. With `seeds`, each end is kept once: `seeds`
  // and `local` have as many entries as there are ends, `outcome` has 2.
  void ends(uintptr_t pairs, bool wide, int64_t links, int64_t negatives, int64_t each, uint64_t key,
            bool strict, uintptr_t ends, uintptr_t seeds, bool wide_seeds, uintptr_t local, uintptr_t outcome,
            uintptr_t stream) {
    const LinkEnds all{at<const void>(pairs), wide,          links,  negatives,        each, key, counts_,
                       first_source_,         first_target_, strict, at<int64_t>(ends)};
    const int64_t count = all.count();
    if (seeds && (count < 1 || count > kMostSorted))
      throw py::value_error(std::to_string(count) + " ends are sorted; it must be 1 to " +
                            std::to_string(kMostSorted));
    doing("finding the ends of links on the GPU", [&] {
      const gpu::OnDevice current(device_);
      with_types(wide_edges_, wide_nodes_, [&](auto edge, auto vertex) {
        using P = decltype(edge);
        using N = decltype(vertex);
        find_ends(
            all, KnownEdges<P, N>{{static_cast<const P*>(known_edges_), static_cast<const N*>(known_nodes_)}},
            device_, stream_of(stream));
      });
      if (!seeds) return;
      const auto keep = [&](auto vertex) {
        distinct_ends(all.out, count, num_nodes_, at<decltype(vertex)>(seeds), at<int64_t>(local),
                      at<DistinctEnds>(outcome), device_, stream_of(stream));
      };
      wide_seeds ? keep(int64_t{}) : keep(int32_t{});
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

// Of a hop: indptr or 0, sources, destinations or 0, number of edges, where the positions go, and whether
// indptr and vertices are int64.
using Hop = std::tuple<uintptr_t, uintptr_t, uintptr_t, int64_t, uintptr_t, bool, bool>;

// All addresses are of memory that Python has just allocated, or of a sample of the loader's own. `slots`
// [capacity] are -1 and `found` [hops] are 0.
void find_links(uintptr_t slots, uint64_t capacity, int64_t seeds, uintptr_t sources, uintptr_t targets,
                int64_t count, bool reverse, const std::vector<Hop>& hops, uintptr_t found, int device,
                uintptr_t stream) {
  if (capacity & (capacity - 1) || capacity < static_cast<uint64_t>(reverse ? 2 : 1) * count + 1)
    throw py::value_error("capacity is " + std::to_string(capacity) + "; it must be a power of two above " +
                          std::to_string((reverse ? 2 : 1) * count));
  const EdgeSet set{at<unsigned long long>(slots), capacity - 1, seeds};
  doing("finding links on the GPU", [&] {
    const gpu::OnDevice current(device);
    const gpu::Stream on = stream_of(stream);
    insert_edges(set, at<const int64_t>(sources), at<const int64_t>(targets), count, reverse, device, on);
    for (size_t h = 0; h < hops.size(); ++h) {
      const auto& [indptr, from, to, edges, gone, wide_edges, wide_nodes] = hops[h];
      const uintptr_t lists = indptr, src = from, dst = to, positions = gone;
      const int64_t most = edges;
      with_types(wide_edges, wide_nodes, [&](auto edge, auto vertex) {
        using P = decltype(edge);
        using N = decltype(vertex);
        find_edges<P, N>(set, at<const P>(lists), at<const N>(src), at<const N>(dst), most, at<P>(positions),
                         at<unsigned long long>(found) + h, device, on);
      });
    }
  });
}

// An array: where it is read, its length, where it is written, whether its entries are int64.
using Array = std::tuple<uintptr_t, int64_t, uintptr_t, bool>;

// Copies `arrays` without the entries at `num_gone` ascending positions, and corrects `indptr`, if there is
// one, which has the type of the positions.
void drop(const std::vector<Array>& arrays, const std::optional<Array>& indptr, uintptr_t gone, bool wide,
          int64_t num_gone, int device, uintptr_t stream) {
  doing("leaving out links on the GPU", [&] {
    const gpu::OnDevice current(device);
    const gpu::Stream on = stream_of(stream);
    const auto with = [&](auto position) {
      using P = decltype(position);
      for (const auto& [in, count, out, wide_entries] : arrays) {
        const auto* const positions = at<const P>(gone);
        if (wide_entries)
          drop_entries(at<const int64_t>(in), count, positions, num_gone, at<int64_t>(out), device, on);
        else
          drop_entries(at<const int32_t>(in), count, positions, num_gone, at<int32_t>(out), device, on);
      }
      if (indptr)
        drop_from_lists(at<const P>(std::get<0>(*indptr)), std::get<1>(*indptr), at<const P>(gone), num_gone,
                        at<P>(std::get<2>(*indptr)), device, on);
    };
    wide ? with(int64_t{}) : with(int32_t{});
  });
}

}  // namespace

void bind_links_cuda(py::module_& m) {
  m.attr("most_sorted_ends") = kMostSorted;
  py::class_<CudaLinkEngine>(m, "CudaLinkEngine")
      .def(py::init<Ids, Ids, int64_t, py::object, py::object, int>(), py::arg("sources"), py::arg("targets"),
           py::arg("num_nodes"), py::arg("indptr"), py::arg("indices"), py::arg("device"))
      .def("ends", &CudaLinkEngine::ends, py::arg("pairs"), py::arg("wide"), py::arg("links"),
           py::arg("negatives"), py::arg("each"), py::arg("key"), py::arg("strict"), py::arg("ends"),
           py::arg("seeds"), py::arg("wide_seeds"), py::arg("local"), py::arg("outcome"), py::arg("stream"));
  m.def("cuda_find_links", &find_links, py::arg("slots"), py::arg("capacity"), py::arg("seeds"),
        py::arg("sources"), py::arg("targets"), py::arg("count"), py::arg("reverse"), py::arg("hops"),
        py::arg("found"), py::arg("device"), py::arg("stream"));
  m.def("cuda_drop", &drop, py::arg("arrays"), py::arg("indptr"), py::arg("gone"), py::arg("wide"),
        py::arg("num_gone"), py::arg("device"), py::arg("stream"));
}

}  // namespace loader
