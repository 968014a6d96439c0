// Exports the subgraphs of mini-batches on the GPU.
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "bindings/gpu.h"
#include "sampler/cuda/subgraph.h"

namespace loader {
namespace {

// Of a hop: indptr, indices, edge ids or None, and the number of source vertices.
using SubgraphHop = std::tuple<py::object, py::object, py::object, int64_t>;

// Numbers of int32 that the scratch memory has.
int64_t scratch_of(int64_t vertices, int64_t edges) { return 3 * vertices + 1 + 2 * edges + kSubgraphBlocks; }

template <typename P, typename N>
void find(const std::vector<SubgraphHop>& hops, int64_t seeds, const py::object& nodes,
          const py::object& scratch, const py::object& sizes, const py::object& out_nodes,
          const py::object& out_edges, const py::object& out_ids, int device, StreamHandle stream) {
  const Place place(kGpu, device);
  SubgraphArgs<P, N> args{};
  int64_t edges = 0;
  for (size_t h = 0; h < hops.size(); ++h) {
    const auto& [indptr, indices, ids, num_src] = hops[h];
    const auto offsets = view<const P>(indptr, "indptr", -1, place);  // [num_dst + 1]
    if (h == 0 && offsets.size != seeds + 1)
      throw py::value_error("indptr has " + std::to_string(offsets.size) + " elements; with " +
                            std::to_string(seeds) + " seeds it must have " + std::to_string(seeds + 1));
    const auto sources = view<const N>(indices, "indices", -1, place);  // [edges]
    const void* of_edges = nullptr;                                     // [edges]
    bool wide_ids = false;
    if (out_ids.is_none() != ids.is_none()) throw py::value_error("out_ids and edge ids need each other");
    if (!ids.is_none()) {
      const auto found = integers_view(ids, "edge_ids", sources.size, place);
      of_edges = found.data;
      wide_ids = found.wide;
    }
    args.hops[h] = {offsets.data, sources.data, of_edges, wide_ids, static_cast<int32_t>(num_src)};
    edges += sources.size;
  }
  const int64_t vertices = std::get<3>(hops.back());
  if (vertices > INT32_MAX || edges > INT32_MAX)
    throw py::value_error("a subgraph on a GPU has fewer than 2**31 nodes and edges");
  args.num_hops = static_cast<int32_t>(hops.size());
  args.seeds = static_cast<int32_t>(seeds);
  args.nodes = view<const N>(nodes, "nodes", vertices, place).data;
  args.local = view<int32_t>(scratch, "scratch", scratch_of(vertices, edges), place).data;
  args.places = args.local + vertices;
  args.source = args.places + vertices;
  args.destination = args.source + edges;
  args.before = reinterpret_cast<uint32_t*>(args.destination + edges);
  args.sums = args.before + vertices + 1;
  args.sizes = view<int64_t>(sizes, "sizes", 2 * (args.num_hops + 1), place).data;  // [2, hops + 1]
  args.out_nodes = view<int64_t>(out_nodes, "out_nodes", vertices, place).data;
  args.out_edges = view<int64_t>(out_edges, "out_edges", 2 * edges, place).data;  // sources, destinations
  args.out_ids = optional_view<int64_t>(out_ids, "out_ids", edges, place);
  doing("finding a subgraph on the GPU", [&] {
    const gpu::OnDevice current(device);
    find_subgraph(args, device, stream_of(stream));
  });
}

void find_any(const std::vector<SubgraphHop>& hops, int64_t seeds, const py::object& nodes,
              const py::object& scratch, const py::object& sizes, const py::object& out_nodes,
              const py::object& out_edges, const py::object& out_ids, int device, StreamHandle stream) {
  if (hops.empty() || hops.size() > kMaxHops)
    throw py::value_error("a mini-batch has " + std::to_string(hops.size()) + " hops; it must have 1 to " +
                          std::to_string(kMaxHops));
  const auto& [indptr, indices, ids, num_src] = hops.front();
  const auto call = has_dtype<int64_t>(indices)  ? &find<int64_t, int64_t>
                    : has_dtype<int64_t>(indptr) ? &find<int64_t, int32_t>
                                                 : &find<int32_t, int32_t>;
  call(hops, seeds, nodes, scratch, sizes, out_nodes, out_edges, out_ids, device, stream);
}

}  // namespace

void bind_subgraph_cuda(py::module_& m) {
  m.def("subgraph_scratch", &scratch_of, py::arg("nodes"), py::arg("edges"));
  m.def("cuda_find_subgraph", &find_any, py::arg("hops"), py::arg("seeds"), py::arg("nodes"),
        py::arg("scratch"), py::arg("sizes"), py::arg("out_nodes"), py::arg("out_edges"), py::arg("out_ids"),
        py::arg("device"), py::arg("stream"));
}

}  // namespace loader
