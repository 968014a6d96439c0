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
  uint32_t* const words;  // in shared memory, see tree_write_bytes

  // Of each hop and type: where its vertices begin in the mini-batch, and the edges of their rows.
  __device__ uint32_t* vertices_from() const { return words; }
  __device__ uint32_t* edges_from() const { return words + (of.segments() + 1); }
  // The same of a tree: the number of its first vertex in the tree, and where that and its first edge go.
  __device__ uint32_t* number_at() const { return words + 2 * (of.segments() + 1); }
  __device__ uint32_t* place_at() const { return words + 3 * (of.segments() + 1); }
  __device__ uint32_t* edge_at() const { return words + 4 * (of.segments() + 1); }

  // to[i] becomes the sum of from[stride * j] for j below i, up to the number of segments. All threads.
  __device__ void add_up(uint32_t* to, const uint32_t* from, int64_t stride) const {
    const int segments = of.segments();
    uint64_t before = 0;
#pragma unroll 1
    for (int first = 0; first < segments; first += of.size()) {
      const int i = first + of.thread();
      uint64_t sum;
      const uint64_t within = of.exclusive(i < segments ? from[stride * i] : 0, sum);
      if (i < segments) to[i] = static_cast<uint32_t>(before + within);
      before += sum;
    }
    if (of.thread() == 0) to[segments] = static_cast<uint32_t>(before);
  }

  // Whether the outputs hold it; the host is told the sizes. All threads of a block get the answer.
  __device__ bool tell() const {
    const bool sampled = of.status() == SampleStatus::kOk;
    const int segments = of.segments();
    __syncthreads();
    if (of.thread() == 0) of.shared.good = sampled;
#pragma unroll 1
    for (int kind = 0; kind < 2; ++kind)
      add_up(kind ? edges_from() : vertices_from(), of.counts().sums_of(kind * segments),
             1 + of.args.groups_capacity);
    __syncthreads();
    const uint32_t *const vertices_from = this->vertices_from(), *const edges_from = this->edges_from();
    const int lane = of.thread() % 32;
    for (int h = of.thread() / 32; h <= of.args.hops; h += of.warps()) {
      const int first = h * of.types();
      bool fits = vertices_from[first + of.types()] <= of.args.frontier_capacity[h];
      if (h < of.args.hops) {
        int64_t rows = 0;
        for (int i = first + lane; i < first + of.types(); i += 32)
          rows += int64_t{vertices_from[i + 1] - vertices_from[i]} * of.args.lists.types[i - first].relations;
        rows = warp_sum(rows);
        if (lane == 0) of.shared.rows_of_hop[h] = rows;
        fits = fits && rows <= of.args.row_capacity[h] &&
               edges_from[first + of.types()] - edges_from[first] <= of.args.edge_capacity[h];
      }
      if (lane == 0 && !fits) of.shared.good = false;
    }
    __syncthreads();
    const bool fits = of.shared.good;
    if (of.block != 0) return fits;
    for (int h = of.thread(); fits && h < of.args.hops; h += of.size())
      indptr(h + 1)[of.shared.rows_of_hop[h]] =
          static_cast<P>(edges_from[(h + 1) * of.types()] - edges_from[h * of.types()]);
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
    const int segments = of.segments();
    __syncthreads();
    add_up(number_at(), of.counts().vertices + tree, of.trees());
    of.counts().each_before(0, 2 * segments - of.types(), tree, [&](int i, uint32_t before) {
      const int at = i < segments ? i : i + 1;  // the first of the edges follows the end of the vertices
      place_at()[at] = vertices_from()[at] + before;
    });
    __syncthreads();
    const uint32_t *const number_at = this->number_at(), *const place_at = this->place_at();
    const auto place_of = [&](uint32_t number) {
      const int i = of.last_before(number_at, segments, number);
      return place_at[i] + (number - number_at[i]);
    };
    N* const nodes = static_cast<N*>(of.batch().vertices);
    for (int h = 0; h <= of.args.hops; ++h) {
      const uint32_t first = number_at[h * of.types()], end = number_at[(h + 1) * of.types()];
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
    const int segment = (hop - 1) * of.types();  // of the first type
    const uint32_t first_row = of.by_tree(of.args.rows_at, hop - 1, tree);
    const uint32_t edges = of.by_tree(of.args.picks_count, hop - 1, tree);
    const uint32_t first_pick = of.by_tree(of.args.picks_at, hop - 1, tree);
    const uint32_t* const firsts = of.args.row_first + of.row_number(first_row);
    __syncthreads();
    const uint32_t *const vertices_from = this->vertices_from(), *const number_at = this->number_at();
    // Where the rows of each type begin in the tree and in the block, and its edges.
    if (of.thread() == 0) {
      uint32_t own = 0, all = 0;
      for (int t = 0; t < of.types(); ++t) {
        const auto relations = static_cast<uint32_t>(of.args.lists.types[t].relations);
        const int i = segment + t;
        of.shared.row_at[t] = own;
        of.shared.first_row[t] = all + (place_at()[i] - vertices_from[i]) * relations;
        own += (number_at[i + 1] - number_at[i]) * relations;
        all += (vertices_from[i + 1] - vertices_from[i]) * relations;
      }
      of.shared.row_at[of.types()] = own;
    }
    __syncthreads();
    const uint32_t rows = of.shared.row_at[of.types()];
    for (int t = of.thread(); t < of.types(); t += of.size()) {
      of.shared.pick_at[t] = of.shared.row_at[t] < rows ? firsts[of.shared.row_at[t]] : edges;
      of.shared.edge_at[t] = edge_at()[segment + t] - edges_from()[segment];
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
