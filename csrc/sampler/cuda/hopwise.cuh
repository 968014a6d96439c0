// The sampling hop by hop in phases, with a barrier of the whole grid after each:
//
//   pick    a thread a row: picks, reads the neighbours, writes their global ids, marks the new ones
//   count   new vertices, and edges of the next hop, of each warp's share of the bitmap and of the old rows
//   assign  prefix sums over those counts: local ids in ascending order of vertex, the next hop's indptr
//
// and `relabel` at the end. The rows of old vertices come first, so everything is a prefix sum in warp order.
// A barrier is the end of a kernel, or one of the grid in a cooperative launch.
#pragma once

#include "sampler/cuda/picking.cuh"

namespace loader {

// The frontier and what a hop adds to it, as bitmaps.
template <typename P, typename N>
struct HopBitmaps : Space<P, N> {
  using Space<P, N>::Space;

  __device__ uint32_t* seen() const { return this->reached(0); }   // vertices of the frontier so far
  __device__ uint32_t* fresh() const { return this->reached(1); }  // vertices found at this hop

  template <int K>
  __device__ void note(const N (&u)[K], uint32_t count) const {
    uint32_t known[K];
#pragma unroll
    for (int i = 0; i < K; ++i)
      if (i < static_cast<int>(count)) known[i] = seen()[u[i] / 32];
#pragma unroll
    for (int i = 0; i < K; ++i) {
      if (i < static_cast<int>(count)) {
        const uint32_t bit = 1u << u[i] % 32;
        if (!(known[i] & bit)) atomicOr(&fresh()[u[i] / 32], bit);
      }
    }
  }

  __device__ N note_one(N u, bool valid) const {
    const uint32_t bit = 1u << u % 32;
    if (valid && !(seen()[u / 32] & bit)) atomicOr(&fresh()[u / 32], bit);
    return u;
  }
};

template <typename P, typename N>
struct HopwisePhases : Picking<HopBitmaps<P, N>> {
  using Base = Picking<HopBitmaps<P, N>>;
  using Base::args;
  using Base::Base;
  using Base::block;
  using Base::blocks;
  using Base::fresh;
  using Base::lane;
  using Base::seen;

  // Marks the seeds and makes them the first frontier. Warps take the same rows as in `count`.
  __device__ void start() const {
    const Share groups = this->own_groups(this->num_seeds());
    for (int64_t i = groups.begin * 32 + lane; i < min(groups.end * 32, this->num_seeds()); i += 32) {
      const N v = this->seeds()[i];
      if (!this->check_seed(v)) {
        this->row_degree()[i] = 0;  // `count` still reads it
        continue;
      }
      const uint32_t bit = 1u << v % 32;
      if (atomicOr(&seen()[v / 32], bit) & bit) this->fail(SampleStatus::kSeedDuplicate, v);
      this->nodes()[i] = v;
      this->local()[v] = static_cast<N>(i);
      set_row(i, v);
    }
  }

  __device__ void set_row(int64_t row, N v) const {
    const P begin = args.graph_indptr[v];
    this->row_begin()[row] = begin;
    this->row_degree()[row] = static_cast<uint32_t>(args.graph_indptr[v + 1] - begin);
  }

  // Rows of the frontier when `hop` is counted and assigned: the vertices found at it are no rows yet.
  __device__ int64_t known_rows(int hop) const {
    return hop == 0 ? this->num_seeds() : this->header().frontiers[hop - 1];
  }

  // Counts for `assign(hop, ...)`: hop 0 counts the seeds' rows alone. Ends with the block's total written.
  __device__ void count(int hop, int64_t rows) const {
    __shared__ Counts partial[kWarps];
    const bool next = hop < args.hops;
    Counts mine{next ? this->edges_of_rows(hop, rows) : 0, 0, 0};
    if (hop > 0) {
      const Share tiles = share(this->num_tiles(), this->warps(), this->warp());
      for (int64_t first = tiles.begin; first < tiles.end; first += kTilesPerLoad) {
        const uint32_t word = this->load_words(fresh(), first, tiles.end);
        mine.fresh += __popc(word);
        if (!next) continue;
        const uint32_t filled = __ballot_sync(kFullMask, word);
        for (int t = 0; t < kTilesPerLoad; ++t) {
          if (!(filled >> t * kTileWords & kTileMask)) continue;
          P begin[kTileWords];
          uint32_t degree[kTileWords];
          this->load_rows(first, t, word, begin, degree);
#pragma unroll
          for (int j = 0; j < kTileWords; ++j) mine.fresh_edges += this->count_of(degree[j], hop + 1);
        }
      }
    }
    this->write_totals(mine, partial);
  }

  // Gives the vertices found at `hop` their local ids and writes the indptr of hop + 1. `rows` becomes the
  // size of the frontier, `edges` that of hop + 1. False where the outputs are too small: nothing was written
  // then.
  __device__ bool assign(int hop, int64_t& rows, int64_t& edges) const {
    const bool next = hop < args.hops;
    Counts before, total;
    this->prefix(before, total);
    const int64_t old_rows = rows;
    rows += total.fresh;
    edges = total.old_edges + total.fresh_edges;
    const bool fits = rows <= args.frontier_capacity[hop] && (!next || edges <= args.edge_capacity[hop]);
    if (block == 0 && threadIdx.x == 0) {
      this->header().frontiers[hop] = rows;
      if (next) this->header().edges[hop] = edges;
      this->header().hops_done = hop;
      if (!fits) this->fail(SampleStatus::kOverflow, 0);
      // The last sizes are known: the host goes on while the blocks are written.
      if (!next || !fits) this->publish();
    }
    if (!fits) return false;
    P* const indptr = next ? this->indptr(hop + 1) : nullptr;
    if (next) this->write_indptr(hop, old_rows, before.old_edges);
    if (hop > 0) {
      const Share tiles = share(this->num_tiles(), this->warps(), this->warp());
      int64_t rank = old_rows + before.fresh, at = total.old_edges + before.fresh_edges;
      uint32_t following = this->load_words(fresh(), tiles.begin, tiles.end);
      for (int64_t first = tiles.begin; first < tiles.end; first += kTilesPerLoad) {
        const uint32_t word = following;
        following = this->load_words(fresh(), first + kTilesPerLoad, tiles.end);
        const int64_t index = first * kTileWords + lane;
        if (next && word) {
          seen()[index] |= word;
          fresh()[index] = 0;
        } else if (!next &&
                   index < min(tiles.end * kTileWords, this->num_words())) {  // leave the bitmaps clean
          if (seen()[index]) seen()[index] = 0;
          if (word) fresh()[index] = 0;
        }
        const uint32_t filled = __ballot_sync(kFullMask, word);
        for (int t = 0; t < kTilesPerLoad; ++t) {
          if (!(filled >> t * kTileWords & kTileMask)) continue;
          P begin[kTileWords];
          uint32_t degree[kTileWords], offset[kTileWords], sum[kTileWords];
          if (next) {
            this->load_rows(first, t, word, begin, degree);
#pragma unroll
            for (int j = 0; j < kTileWords; ++j) offset[j] = this->count_of(degree[j], hop + 1);
            warp_exclusive(offset, sum);
          }
#pragma unroll
          for (int j = 0; j < kTileWords; ++j) {
            const uint32_t bits = __shfl_sync(kFullMask, word, t * kTileWords + j);
            if (bits >> lane & 1) {
              const int64_t v = ((first + t) * kTileWords + j) * 32 + lane;
              const int64_t row = rank + __popc(bits & ((1u << lane) - 1));
              this->nodes()[row] = static_cast<N>(v);
              this->local()[v] = static_cast<N>(row);
              if (next) {
                this->row_begin()[row] = begin[j];
                this->row_degree()[row] = degree[j];
                indptr[row] = static_cast<P>(at + offset[j]);
              }
            }
            rank += __popc(bits);
            if (next) at += sum[j];
          }
        }
      }
    }
    if (next && this->warp() == this->warps() - 1 && lane == 0) indptr[rows] = static_cast<P>(edges);
    return true;
  }

  // The end of a mini-batch, whose bitmaps the last `assign` left empty.
  __device__ void finish() const { this->relabel(); }
};

}  // namespace loader
