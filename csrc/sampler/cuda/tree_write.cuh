// The trees of a mini-batch that were sampled, as its arrays: the host is told the sizes, and each tree is
// copied to where it goes.
#pragma once

#include "sampler/cuda/trees.h"

namespace loader {

template <typename Trees>
struct TreeWriter {
  using P = typename Trees::P;
  using N = typename Trees::N;

  const Trees& of;
  uint32_t* const words;  // in shared memory, see tree_write_bytes

  // Of each hop and type: the number of its first vertex in the mini-batch, of its first row and of the first
  // edge of these. Edges count on from the vertices, so of their numbers only differences are of use.
  __device__ uint32_t* vertices_from() const { return words; }
  __device__ uint32_t* edges_from() const { return words + (of.segments() + 1); }
  __device__ uint32_t* rows_from() const { return words + 2 * (of.segments() + 1); }
  // The same in a tree, and where these go: the vertices in the mini-batch, rows and edges in their block.
  __device__ uint32_t* vertices_of_tree() const { return words + 3 * (of.segments() + 1); }
  __device__ uint32_t* edges_of_tree() const { return words + 4 * (of.segments() + 1); }
  __device__ uint32_t* rows_of_tree() const { return words + 5 * (of.segments() + 1); }
  __device__ uint32_t* vertices_to() const { return words + 6 * (of.segments() + 1); }
  __device__ uint32_t* edges_to() const { return words + 7 * (of.segments() + 1); }
  __device__ uint32_t* rows_to() const { return words + 8 * (of.segments() + 1); }
  // Of each segment: its hop, and the relations of its type.
  __device__ uint32_t* hops() const { return words + 9 * (of.segments() + 1); }
  __device__ uint32_t* relations() const { return words + 10 * (of.segments() + 1); }

  __device__ int hop_of(int segment) const { return static_cast<int>(hops()[segment]); }

  // Segments whose vertices have rows: the last hop's have none.
  __device__ int with_rows() const { return of.segments() - of.types(); }

  // Adds up the counts of all segments: those of vertices, of edges and of rows begin at to[0], to[1] and
  // to[2] times one more than there are segments.
  template <typename Count>
  __device__ void add_up(uint32_t* to, const Count& count) const {
    const int segments = of.segments(), all = segments + with_rows();
    uint32_t* const rows_to = to + 2 * (segments + 1);
    uint64_t before = 0;
#pragma unroll 1
    for (int first = 0; first < all; first += of.size()) {
      const int i = first + of.thread();
      uint64_t own = i < all ? count(i) : 0, sum;
      if (i < with_rows()) own |= own * relations()[i] << 32;  // rows
      const uint64_t within = before + of.exclusive(own, sum);
      if (i <= segments && i < all) {
        to[i] = static_cast<uint32_t>(within);
        rows_to[i] = static_cast<uint32_t>(within >> 32);
      }
      if (i >= segments && i < all) to[i + 1] = static_cast<uint32_t>(within);
      before += sum;
    }
    if (of.thread() == 0) to[all + 1] = static_cast<uint32_t>(before);
  }

  // Whether the outputs hold it; the host is told the sizes. All threads of a block get the answer.
  __device__ bool tell() const {
    const bool sampled = of.status() == SampleStatus::kOk;
    const int segments = of.segments();
    for (int i = of.thread(); i < segments; i += of.size()) {  // `add_up` reads what the same thread wrote
      hops()[i] = static_cast<uint32_t>(i / of.types());
      relations()[i] = static_cast<uint32_t>(of.args.lists.types[i % of.types()].relations);
    }
    add_up(vertices_from(), [&](int i) { return of.counts().total(i); });
    if (of.thread() == 0) of.shared.good = sampled;
    __syncthreads();
    const uint32_t *const vertices_from = this->vertices_from(), *const edges_from = this->edges_from(),
                          *const rows_from = this->rows_from();
    const auto of_hop = [&](const uint32_t* from, int h) {
      return int64_t{from[(h + 1) * of.types()] - from[h * of.types()]};
    };
    if (const int h = of.thread(); h <= of.args.hops) {
      const bool fits = vertices_from[(h + 1) * of.types()] <= of.args.frontier_capacity[h] &&
                        (h == of.args.hops || (of_hop(rows_from, h) <= of.args.row_capacity[h] &&
                                               of_hop(edges_from, h) <= of.args.edge_capacity[h]));
      if (!fits) of.shared.good = false;
    }
    __syncthreads();
    const bool fits = of.shared.good;
    if (of.block != 0) return fits;
    for (int h = of.thread(); fits && h < of.args.hops; h += of.size())
      indptr(h)[of_hop(rows_from, h)] = static_cast<P>(of_hop(edges_from, h));
    // As hand_over, by all threads at once: the host waits for this, and one thread takes 4 us.
    auto& host = *static_cast<HeteroHeader*>(of.batch().host_header);
    for (int i = of.thread(); i < segments && sampled; i += of.size())
      host.new_by_type[hop_of(i) * kMaxTypes + i - hop_of(i) * of.types()] =
          vertices_from[i + 1] - vertices_from[i];
    for (int h = of.thread(); h <= of.args.hops; h += of.size()) {
      host.frontiers[h] = sampled ? int64_t{vertices_from[(h + 1) * of.types()]} : of.trees();
      if (h < of.args.hops) host.edges[h] = sampled ? of_hop(edges_from, h) : -1;
    }
    if (of.thread() == of.size() - 1) {
      const TreeState& own = of.state();
      const auto table = own.table.value, picks = own.picks.value, rows = own.rows.value;
      if (sampled && !fits) of.fail(SampleStatus::kOverflow, 0);
      host.status = of.status();
      host.detail = host.status == SampleStatus::kOverflow ? static_cast<int64_t>(table) : own.detail;
      host.hops_done = sampled ? of.args.hops : 0;
      host.counted = static_cast<int64_t>(picks);
      host.lines = static_cast<int64_t>(rows);
    }
    __syncthreads();
    if (of.thread() == 0) {
      __threadfence_system();
      *reinterpret_cast<volatile uint64_t*>(&host.sequence) = of.batch().sequence;
    }
    return fits;
  }

  // Copies the trees to where they go.
  __device__ void write() const {
    count_from_hops();
    for (int64_t tree = of.block; tree < of.trees(); tree += of.blocks) write_tree(tree);
  }

  // Makes the numbers of rows and edges those in the block of their hop: a turn of the block reads what turns
  // for earlier segments have not changed yet.
  __device__ void count_from_hops() const {
    const int segments = of.segments();
#pragma unroll 1
    for (int turn = (segments - 1) / of.size(); turn >= 0; --turn) {
      const int i = turn * of.size() + of.thread();
      const bool is_one = i < segments;
      const int first = is_one ? hop_of(i) * of.types() : 0;
      const uint32_t edges = edges_from()[first], rows = rows_from()[first];
      __syncthreads();
      if (!is_one) continue;
      edges_from()[i] -= edges;
      rows_from()[i] -= rows;
    }
  }

  __device__ P* indptr(int hop) const {  // hops count from 0 on here
    return static_cast<P*>(of.batch().edges) + of.args.indptr_at[hop];
  }

  __device__ void write_tree(int64_t tree) const {
    const int segments = of.segments(), h = of.size() - 1 - of.thread();
    // On their way while the counts are added up.
    const bool has_hop = h <= of.args.hops, has_rows = h < of.args.hops;
    const uint32_t vertices_at = has_hop ? of.by_tree(of.args.vertices_at, h, tree) : 0,
                   rows_at = has_rows ? of.by_tree(of.args.rows_at, h, tree) : 0,
                   picks_at = has_rows ? of.by_tree(of.args.picks_at, h, tree) : 0;
    __syncthreads();
    add_up(vertices_of_tree(), [&](int i) { return of.counts().of_segment(i)[tree]; });
    if (has_hop) {
      of.shared.vertices_at[h] = vertices_at;
      of.shared.rows_at[h] = rows_at;
      of.shared.picks_at[h] = picks_at;
    }
    of.counts().each_before(0, segments + with_rows(), tree, [&](int i, uint32_t before) {
      if (i >= segments) {
        edges_to()[i - segments] = edges_from()[i - segments] + before;
      } else {
        vertices_to()[i] = vertices_from()[i] + before;
        rows_to()[i] = rows_from()[i] + before * relations()[i];
      }
    });
    __syncthreads();
    write_vertices(tree);
    write_rows();
    write_edges();
  }

  __device__ void write_vertices(int64_t tree) const {
    const uint32_t *const from = vertices_of_tree(), *const to = vertices_to();
    N* const nodes = static_cast<N*>(of.batch().vertices);
#pragma unroll 1
    for (uint32_t i = of.thread(); i < from[of.segments()]; i += of.size()) {
      const int segment = of.last_before(from, of.segments(), i), hop = hop_of(segment);
      const uint32_t at = to[segment] + (i - from[segment]);
      nodes[at] = of.vertices()[of.shared.vertices_at[hop] + (i - from[hop * of.types()])];
      of.batch().trees[at] = static_cast<int32_t>(tree);
    }
  }

  __device__ void write_rows() const {
    const uint32_t *const from = rows_of_tree(), *const to = rows_to(), *const edges = edges_of_tree();
#pragma unroll 1
    for (uint32_t i = of.thread(); i < from[with_rows()]; i += of.size()) {
      const int segment = of.last_before(from, with_rows(), i), hop = hop_of(segment);
      const uint32_t row = of.shared.rows_at[hop] + (i - from[hop * of.types()]);
      const uint32_t before =
          of.args.row_first[of.row_number(row)] - (edges[segment] - edges[hop * of.types()]);
      indptr(hop)[to[segment] + (i - from[segment])] = static_cast<P>(edges_to()[segment] + before);
    }
  }

  __device__ void write_edges() const {
    const uint32_t *const from = edges_of_tree(), *const to = edges_to(), *const numbers = vertices_of_tree();
#pragma unroll 1
    for (uint32_t edge = from[0] + of.thread(); edge < from[with_rows()]; edge += of.size()) {
      const int segment = of.last_before(from, with_rows(), edge), hop = hop_of(segment);
      const int64_t pick = of.pick_number(of.shared.picks_at[hop] + (edge - from[hop * of.types()]));
      const uint32_t number = of.args.picks[pick], at = to[segment] + (edge - from[segment]);
      const int of_node = of.last_before(numbers, of.segments(), number);
      N* const indices = static_cast<N*>(of.batch().vertices) + of.args.indices_at[hop];
      indices[at] = static_cast<N>(vertices_to()[of_node] + (number - numbers[of_node]));
      if (of.args.edge_ids)
        (static_cast<P*>(of.batch().edges) + of.args.edge_ids_at[hop])[at] = of.args.places[pick];
    }
  }
};

}  // namespace loader
