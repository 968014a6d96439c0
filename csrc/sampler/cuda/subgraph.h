// The subgraph of a mini-batch on a GPU: each vertex keeps the picks of the hop after the one that first met
// it, as torch_geometric samples; vertices that only other picks lead to are left out.
#pragma once

#include <cstdint>

#include "gpu/stream.h"
#include "sampler/pick.h"

namespace loader {

#ifdef LOADER_SUBGRAPH_BLOCKS  // tests have few blocks of few threads
constexpr int kSubgraphThreads = 64, kSubgraphBlocks = LOADER_SUBGRAPH_BLOCKS;
#else
constexpr int kSubgraphThreads = 256;  // of a block
constexpr int kSubgraphBlocks = 264;   // of a launch: two for each multiprocessor of an H200
#endif

// The block of one hop. A place is a vertex's position in `nodes` of the mini-batch.
template <typename P, typename N>
struct HopBlock {
  const P* indptr;       // [num_dst + 1]
  const N* indices;      // [edges], places
  const void* edge_ids;  // [edges], or null
  bool wide_ids;         // edge_ids are int64, else int32
  int32_t num_src;       // places that this hop may have met first end here
};

// A mini-batch, and the arrays in which its subgraph is made. Sizes are those of the mini-batch.
template <typename P, typename N>
struct SubgraphArgs {
  HopBlock<P, N> hops[kMaxHops];  // from the seeds outward
  int32_t num_hops, seeds;
  const N* nodes;        // [vertices]
  int32_t* local;        // [vertices], number of the vertex in the subgraph, by place
  int32_t* places;       // [vertices], places, by number
  uint32_t* before;      // [vertices + 1], vertices that a hop met first at smaller places
  uint32_t* sums;        // [kSubgraphBlocks]
  int32_t* source;       // [edges], places
  int32_t* destination;  // [edges], numbers
  int64_t* sizes;      // [2 * (num_hops + 1)]: vertices after each hop, then edges, both with all hops before
  int64_t* out_nodes;  // [vertices]
  int64_t* out_edges;  // [2 * edges]: as many sources as there are, then the destinations
  int64_t* out_ids;    // [edges], or null

  LOADER_HD int64_t* vertices_after() const { return sizes; }
  LOADER_HD int64_t* edges_after() const { return sizes + num_hops + 1; }
  LOADER_HD int32_t first_place(int hop) const { return hop == 0 ? seeds : hops[hop - 1].num_src; }
};

// Puts the kernels on a stream of `device`, whose context is the current one. Throws std::runtime_error if a
// launch is refused.
template <typename P, typename N>
void find_subgraph(const SubgraphArgs<P, N>& args, int device, gpu::Stream stream);

}  // namespace loader
