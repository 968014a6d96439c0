// Exports the subgraphs of mini-batches on the GPU.
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "bindings/gpu.h"
#include "sampler/cuda/subgraph.h"

namespace loader {
namespace {

// Of a hop: indptr, indices, edge ids or 0, and the number of source vertices.
using SubgraphHop = std::tuple<uintptr_t, uintptr_t, uintptr_t, int64_t>;

template <typename P, typename N>
void find(const std::vector<SubgraphHop>& hops, bool wide_ids, int64_t seeds, uintptr_t nodes, int64_t edges,
          uintptr_t scratch, uintptr_t sizes, uintptr_t out_nodes, uintptr_t out_edges, uintptr_t out_ids,
          int device, uintptr_t stream) {
  SubgraphArgs<P, N> args{};
  for (size_t h = 0; h < hops.size(); ++h) {
    const auto& [indptr, indices, ids, num_src] = hops[h];
    args.hops[h] = {at<const P>(indptr), at<const N>(indices), at<const void>(ids), wide_ids,
                    static_cast<int32_t>(num_src)};
  }
  const int64_t vertices = std::get<3>(hops.back());
  args.num_hops = static_cast<int32_t>(hops.size());
  args.seeds = static_cast<int32_t>(seeds);
  args.nodes = at<const N>(nodes);
  args.local = at<int32_t>(scratch);
  args.places = args.local + vertices;
  args.source = args.places + vertices;
  args.destination = args.source + edges;
  args.before = reinterpret_cast<uint32_t*>(args.destination + edges);
  args.sums = args.before + vertices + 1;
  args.sizes = at<int64_t>(sizes);
  args.out_nodes = at<int64_t>(out_nodes);
  args.out_edges = at<int64_t>(out_edges);
  args.out_ids = at<int64_t>(out_ids);
  doing("finding a subgraph on the GPU", [&] {
    const gpu::OnDevice current(device);
    find_subgraph(args, device, reinterpret_cast<gpu::Stream>(stream));
  });
}

// Numbers of int32 that the scratch memory has.
int64_t scratch_of(int64_t vertices, int64_t edges) { return 3 * vertices + 1 + 2 * edges + kSubgraphBlocks; }

// All addresses are of a mini-batch of the loader's own, or of memory that Python has just allocated.
void find_any(const std::vector<SubgraphHop>& hops, bool wide_edges, bool wide_nodes, bool wide_ids,
              int64_t seeds, uintptr_t nodes, int64_t edges, uintptr_t scratch, uintptr_t sizes,
              uintptr_t out_nodes, uintptr_t out_edges, uintptr_t out_ids, int device, uintptr_t stream) {
  if (hops.empty() || hops.size() > kMaxHops)
    throw py::value_error("a mini-batch has " + std::to_string(hops.size()) + " hops; it must have 1 to " +
                          std::to_string(kMaxHops));
  if (std::get<3>(hops.back()) > INT32_MAX || edges > INT32_MAX)
    throw py::value_error("a subgraph on a GPU has fewer than 2**31 nodes and edges");
  const auto call = wide_nodes   ? &find<int64_t, int64_t>
                    : wide_edges ? &find<int64_t, int32_t>
                                 : &find<int32_t, int32_t>;
  call(hops, wide_ids, seeds, nodes, edges, scratch, sizes, out_nodes, out_edges, out_ids, device, stream);
}

}  // namespace

void bind_subgraph_cuda(py::module_& m) {
  m.def("subgraph_scratch", &scratch_of, py::arg("nodes"), py::arg("edges"));
  m.def("cuda_find_subgraph", &find_any, py::arg("hops"), py::arg("wide_edges"), py::arg("wide_nodes"),
        py::arg("wide_ids"), py::arg("seeds"), py::arg("nodes"), py::arg("edges"), py::arg("scratch"),
        py::arg("sizes"), py::arg("out_nodes"), py::arg("out_edges"), py::arg("out_ids"), py::arg("device"),
        py::arg("stream"));
}

}  // namespace loader
