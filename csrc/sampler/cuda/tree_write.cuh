// The trees of a mini-batch that were sampled, as its arrays: the host is told the sizes, and each tree is
// copied to where it goes.
#pragma once

#include "sampler/cuda/space.cuh"
#include "sampler/cuda/trees.h"

namespace loader {

template <typename Trees>
struct TreeWriter {
  using P = typename Trees::P;
  using N = typename Trees::N;

  const Trees& of;

  // Whether the outputs hold it; the host is told the sizes. All threads of a block get the answer.
  __device__ bool tell() const {
    const bool sampled = of.status() == SampleStatus::kOk;
    const int segments = (of.args.hops + 1) * of.types();
    // Where the vertices of each hop and type begin, and the edges of their rows.
    uint32_t *const vertices_from = of.shared.number_at, *const edges_from = of.shared.place_at;
    __syncthreads();
    for (int i = of.thread(); i <= segments; i += of.size()) {
      vertices_from[i] = of.by_type(of.args.found_at)[i * of.trees()];
      if (i <= segments - of.types()) edges_from[i] = of.by_type(of.args.edges_at)[i * of.trees()];
    }
    __syncthreads();
    if (of.thread() == 0) {
      bool fits = sampled;
      for (int h = 0; h <= of.args.hops; ++h)
        fits = fits && vertices_from[(h + 1) * of.types()] <= of.args.frontier_capacity[h];
      for (int h = 0; h < of.args.hops; ++h) {
        int64_t rows = 0;
        for (int t = 0; t < of.types(); ++t) {
          const int i = h * of.types() + t;
          rows += int64_t{vertices_from[i + 1] - vertices_from[i]} * of.args.lists.types[t].relations;
        }
        const uint32_t edges = edges_from[(h + 1) * of.types()] - edges_from[h * of.types()];
        fits = fits && rows <= of.args.row_capacity[h] && edges <= of.args.edge_capacity[h];
        if (fits && of.block == 0) indptr(h + 1)[rows] = static_cast<P>(edges);
      }
      of.shared.good = fits;
    }
    __syncthreads();
    const bool fits = of.shared.good;
    if (of.block != 0) return fits;
    auto* const host = static_cast<TypedHeader*>(of.batch().host_header)->new_by_type;
    for (int i = of.thread(); i < segments && sampled; i += of.size())
      host[i / of.types() * kMaxTypes + i % of.types()] = vertices_from[i + 1] - vertices_from[i];
    __threadfence_system();
    __syncthreads();
    if (of.thread() == 0) {
      SampleHeader& header = of.state().header;
      for (int h = 0; h <= of.args.hops; ++h)
        header.frontiers[h] = sampled ? int64_t{vertices_from[(h + 1) * of.types()]} : of.trees();
      for (int h = 0; h < of.args.hops; ++h)
        header.edges[h] =
            sampled ? int64_t{edges_from[(h + 1) * of.types()]} - edges_from[h * of.types()] : int64_t{-1};
      header.hops_done = sampled ? of.args.hops : 0;
      header.counted = static_cast<int64_t>(of.state().picks.value);
      if (sampled && !fits) of.fail(SampleStatus::kOverflow, 0);
      if (of.status() == SampleStatus::kOverflow)
        header.detail = static_cast<int64_t>(of.state().table.value);
      hand_over(header, of.batch().host_header, of.args.hops, of.status(),
                static_cast<int64_t>(of.state().rows.value), of.batch().sequence);
    }
    return fits;
  }

  // Copies the trees to where they go.
  __device__ void write() const {
    for (int64_t tree = of.block; tree < of.trees(); tree += of.blocks) write_tree(tree);
  }

  __device__ P* indptr(int hop) const {
    return static_cast<P*>(of.batch().edges) + of.args.indptr_at[hop - 1];
  }

  __device__ void write_tree(int64_t tree) const {
    const int segments = (of.args.hops + 1) * of.types();
    __syncthreads();
    for (int i = of.thread(); i < segments; i += of.size()) {
      const int64_t at = of.entry(i / of.types(), i % of.types(), tree);
      of.shared.number_at[i] = of.by_type(of.args.found)[at];
      of.shared.place_at[i] = of.by_type(of.args.found_at)[at];
    }
    __syncthreads();
    if (of.thread() == 0) {
      uint32_t sum = 0;
      for (int i = 0; i < segments; ++i) {
        const uint32_t count = of.shared.number_at[i];
        of.shared.number_at[i] = sum;
        sum += count;
      }
      of.shared.number_at[segments] = sum;
    }
    __syncthreads();
    const auto place_of = [&](uint32_t number) {
      const int i = of.last_before(of.shared.number_at, segments, number);
      return of.shared.place_at[i] + (number - of.shared.number_at[i]);
    };
    N* const nodes = static_cast<N*>(of.batch().vertices);
    for (int h = 0; h <= of.args.hops; ++h) {
      const uint32_t first = of.shared.number_at[h * of.types()],
                     end = of.shared.number_at[(h + 1) * of.types()];
      const uint32_t at = of.by_tree(of.args.vertices_at, h, tree);
      for (uint32_t i = of.thread(); i < end - first; i += of.size()) {
        const uint32_t place = place_of(first + i);
        nodes[place] = of.vertices()[at + i];
        of.batch().trees[place] = static_cast<int32_t>(tree);
      }
    }
    for (int hop = 1; hop <= of.args.hops; ++hop) write_hop(tree, hop, place_of);
  }

  template <typename PlaceOf>
  __device__ void write_hop(int64_t tree, int hop, const PlaceOf& place_of) const {
    const uint32_t rows = of.read_types(tree, hop), first_row = of.by_tree(of.args.rows_at, hop - 1, tree);
    const uint32_t edges = of.by_tree(of.args.picks_count, hop - 1, tree);
    const uint32_t first_pick = of.by_tree(of.args.picks_at, hop - 1, tree);
    const uint32_t* const firsts = of.args.row_first + of.row_number(first_row);
    // Where the rows of each type begin in the block, and the edges of this tree's.
    if (of.thread() == 0) {
      uint32_t before = 0;
      for (int t = 0; t < of.types(); ++t) {
        const auto relations = static_cast<uint32_t>(of.args.lists.types[t].relations);
        const uint32_t first = of.begin_of(of.args.found_at, hop - 1, t),
                       end = of.begin_of(of.args.found_at, hop - 1, t + 1);
        of.shared.first_row[t] =
            before + (of.by_type(of.args.found_at)[of.entry(hop - 1, t, tree)] - first) * relations;
        before += (end - first) * relations;
      }
    }
    for (int t = of.thread(); t < of.types(); t += of.size()) {
      of.shared.pick_at[t] = of.shared.row_at[t] < rows ? firsts[of.shared.row_at[t]] : edges;
      of.shared.edge_at[t] = of.by_type(of.args.edges_at)[of.entry(hop - 1, t, tree)] -
                             of.begin_of(of.args.edges_at, hop - 1, 0);
    }
    __syncthreads();
    for (uint32_t i = of.thread(); i < rows; i += of.size()) {
      const int t = of.last_before(of.shared.row_at, of.types(), i);
      indptr(hop)[of.shared.first_row[t] + (i - of.shared.row_at[t])] =
          static_cast<P>(of.shared.edge_at[t] + (firsts[i] - of.shared.pick_at[t]));
    }
    N* const indices = static_cast<N*>(of.batch().vertices) + of.args.indices_at[hop - 1];
    P* const ids =
        of.args.edge_ids ? static_cast<P*>(of.batch().edges) + of.args.edge_ids_at[hop - 1] : nullptr;
    struct Edge {
      uint32_t number;
      P place;
    };
    of.in_fours(
        edges,
        [&](uint32_t i) {
          const int64_t at = of.pick_number(first_pick + i);
          return Edge{of.args.picks[at], ids ? of.args.places[at] : P{0}};
        },
        [&](uint32_t i, const Edge& edge) {
          const int t = of.last_before(of.shared.pick_at, of.types(), i);
          const uint32_t to = of.shared.edge_at[t] + (i - of.shared.pick_at[t]);
          indices[to] = static_cast<N>(place_of(edge.number));
          if (ids) ids[to] = edge.place;
        });
  }
};

}  // namespace loader
