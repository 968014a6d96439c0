// The sampling hop by hop in phases, with a barrier of the whole grid after each:
//
//   pick    a thread a row: picks, reads the neighbors, writes their global ids, marks the new ones
//   count   new vertices, and edges of the next hop, of each warp's share of the bitmap and of the old rows
//   assign  prefix sums over those counts: local ids in ascending order of vertex, the next hop's indptr
//
// and `relabel` at the end. Local ids are not written by vertex, but counted in the bitmaps: those and the
// ranks of their words (sampler.h) take a fraction of the memory, so that they stay in the L2 cache, those of
// several mini-batches, too. The rows of old vertices come first, so everything is a prefix sum in warp
// order. A barrier is the end of a kernel, or one of the grid in a cooperative launch.
//
// If only a scan of the lists tells how many are picked, new vertices become rows before their edges are
// counted: see hopwise_scan.cuh.
#pragma once

#include "sampler/cuda/picking.cuh"

namespace loader {

// The frontier and what a hop adds to it, as bitmaps.
template <typename Args>
struct HopBitmaps : Space<Args> {
  using P = typename Args::Edge;
  using N = typename Args::Vertex;
  using Space<Args>::Space;

  __device__ uint32_t* seen() const { return this->reached(0); }            // vertices of the frontier so far
  __device__ uint32_t* fresh(int hop) const { return this->reached(hop); }  // vertices found at it

  template <int K>
  __device__ void note(int hop, const N (&u)[K], uint32_t count) const {
    uint32_t* const set = fresh(hop);
    uint32_t known[K];
#pragma unroll
    for (int i = 0; i < K; ++i)
      if (i < static_cast<int>(count)) known[i] = seen()[u[i] / 32];
#pragma unroll
    for (int i = 0; i < K; ++i) {
      if (i < static_cast<int>(count)) {
        const uint32_t bit = 1u << u[i] % 32;
        if (!(known[i] & bit)) atomicOr(&set[u[i] / 32], bit);
      }
    }
  }

  __device__ N note_one(int hop, N u, bool valid) const {
    const uint32_t bit = 1u << u % 32;
    if (valid && !(seen()[u / 32] & bit)) atomicOr(&fresh(hop)[u / 32], bit);
    return u;
  }
};

template <typename Args>
struct HopwisePhases : Picking<HopBitmaps<Args>> {
  using P = typename Args::Edge;
  using N = typename Args::Vertex;
  using Base = Picking<HopBitmaps<Args>>;
  using Base::args;
  using Base::Base;
  using Base::block;
  using Base::blocks;
  using Base::fresh;
  using Base::lane;
  using Base::seen;
  using Rows = typename Base::Rows;
  static constexpr bool kHashed = false;

  // Marks the seeds and makes them the first frontier. Warps take the same rows as in `count`.
  __device__ void start() const {
    const Share groups = this->own_groups(this->num_seeds());
    const int64_t end = min(groups.end * 32, this->num_seeds());
    for (int64_t i = groups.begin * 32 + lane; i - lane < end; i += 32) {
      const uint32_t degree = i < end ? start_row(i) : 0;
      if constexpr (Base::kScans) this->cut_lists(i, degree);
    }
  }

  // Makes a seed a row. Returns its degree, 0 of a bad seed.
  __device__ uint32_t start_row(int64_t row) const {
    const N v = this->seeds()[row];
    if constexpr (!Base::kHetero) LOADER_WRITES_ROW(this->row_degree() + row);
    if (!this->check_seed(v)) {
      if constexpr (!Base::kHetero) this->row_degree()[row] = 0;  // `count` still reads it
      return 0;
    }
    const uint32_t bit = 1u << v % 32;
    if (atomicOr(&seen()[v / 32], bit) & bit) this->fail(SampleStatus::kSeedDuplicate, v);
    this->nodes()[row] = v;
    this->local()[v] = static_cast<N>(row);
    if constexpr (Base::kHetero) {
      return 0;
    } else {
      const ListOf<P> list = this->lists().list({v});
      this->row_begin()[row] = list.begin;
      this->row_degree()[row] = list.degree();
      return list.degree();
    }
  }

  // Rows of the frontier when `hop` is counted and assigned: the vertices found at it are no rows yet.
  __device__ int64_t known_rows(int hop) const {
    return hop == 0 ? this->num_seeds() : this->header().frontiers[hop - 1];
  }

  // Whether the edges of the hop that follows are counted and assigned with the vertices.
  __device__ bool counts_edges(int hop) const { return !Base::kScans && !Base::kHetero && hop < args.hops; }

  // Counts for `assign(hop, ...)`: hop 0 counts only the seeds' rows. Ends with the block's total written.
  __device__ void count(int hop, int64_t rows) const {
    __shared__ Counts partial[kWarps];
    const bool next = counts_edges(hop);
    Counts mine{0, 0, 0};
    if constexpr (!Base::kHetero) mine.old_edges = next ? this->edges_of_rows(hop, rows) : 0;
    if (hop > 0) {
      const Share tiles = share(this->num_tiles(), this->warps(), this->warp());
      uint32_t following = this->load_words(fresh(hop), tiles.begin, tiles.end);
      for (int64_t first = tiles.begin; first < tiles.end; first += kTilesPerLoad) {
        const uint32_t word = following;
        following = this->load_words(fresh(hop), first + kTilesPerLoad, tiles.end);
        mine.fresh += __popc(word);
        if constexpr (!Base::kScans && !Base::kHetero) {
          if (!next) continue;
          this->deal_rows(first, word, [&](uint32_t, const Rows& dealt) {
#pragma unroll
            for (int j = 0; j < kDealt; ++j) mine.fresh_edges += this->count_of(dealt.degree[j], hop + 1);
          });
        }
      }
    }
    this->write_totals(mine, partial);
  }

  // Gives the vertices found at `hop` their local ids and writes the indptr of hop + 1. `rows` becomes the
  // size of the frontier, `edges` that of hop + 1. False where the outputs are too small: nothing was written
  // then.
  __device__ bool assign(int hop, int64_t& rows, int64_t& edges) const {
    const bool next = hop < args.hops, with_edges = counts_edges(hop);
    Counts before, total;
    this->prefix(before, total);
    const int64_t old_rows = rows;
    rows += total.fresh;
    edges = total.old_edges + total.fresh_edges;
    const bool fits =
        rows <= args.frontier_capacity[hop] && (!with_edges || edges <= args.edge_capacity[hop]);
    if (this->thread() == 0) {
      this->header().frontiers[hop] = rows;
      if (next) this->header().edges[hop] = with_edges ? edges : -1;  // not known yet
      this->header().hops_done = hop;
      if (!fits) this->fail(SampleStatus::kOverflow, 0);
      // The last sizes are known: the host goes on while the blocks are written.
      if ((!next && !Base::kHetero) || !fits) this->publish();
    }
    if (!fits) return false;
    P* const indptr = with_edges ? this->indptr(hop + 1) : nullptr;
    if constexpr (!Base::kHetero)
      if (with_edges) this->write_indptr(hop, old_rows, before.old_edges);
    if (hop > 0) {
      const Share tiles = share(this->num_tiles(), this->warps(), this->warp());
      int64_t rank = old_rows + before.fresh, at = total.old_edges + before.fresh_edges;
      if (lane == 0) first_rank(hop) = static_cast<uint32_t>(rank);
      uint32_t following = this->load_words(fresh(hop), tiles.begin, tiles.end);
      for (int64_t first = tiles.begin; first < tiles.end; first += kTilesPerLoad) {
        const uint32_t word = following;
        following = this->load_words(fresh(hop), first + kTilesPerLoad, tiles.end);
        if (Base::kHetero && next && word) seen()[first * kTileWords + lane] |= word;
        if (!next || Base::kHetero) {
          rank += this->number_marked(first, word, [&](uint32_t number, int64_t v) {
            this->nodes()[rank + number] = static_cast<N>(v);
          });
          continue;
        }
        if constexpr (!Base::kHetero) {
          if (word) seen()[first * kTileWords + lane] |= word;
          rank += this->deal_rows(first, word, [&](uint32_t dealt_before, const Rows& dealt) {
            uint32_t offset[kDealt] = {}, sum[kDealt] = {};
            if constexpr (!Base::kScans) {
#pragma unroll
              for (int j = 0; j < kDealt; ++j) offset[j] = this->count_of(dealt.degree[j], hop + 1);
              warp_exclusive(offset, sum);
            }
#pragma unroll
            for (int j = 0; j < kDealt; ++j) {
              const int64_t row = rank + dealt_before + 32 * j + lane;
              if constexpr (Base::kScans) this->cut_lists(row, dealt.degree[j]);
              if (dealt.valid[j]) {
                LOADER_WRITES_ROW(this->row_degree() + row);
                this->nodes()[row] = static_cast<N>(dealt.v[j]);
                this->row_begin()[row] = dealt.begin[j];
                this->row_degree()[row] = dealt.degree[j];
                if constexpr (!Base::kScans) indptr[row] = static_cast<P>(at + offset[j]);
              }
              at += sum[j];
            }
          });
        }
      }
    }
    if (!next) with_ranks([&](auto width) { this->template write_ranks<decltype(width)::value>(); });
    if (with_edges && this->warp() == this->warps() - 1 && lane == 0) indptr[rows] = static_cast<P>(edges);
    return true;
  }

  // The end of a mini-batch, whose bitmaps the last `assign` left empty.
  __device__ void finish() const {
    with_ranks([&](auto width) { this->relabel(RankLookup<decltype(width)::value>{*this}); });
  }

 private:
  // Calls `f` with how many hops' ranks of a word lie side by side (as a type).
  template <typename F>
  __device__ __forceinline__ void with_ranks(const F& f) const {
    return args.hops <= 2 ? f(std::integral_constant<int, 2>()) : f(std::integral_constant<int, 4>());
  }

  // The local id of the first vertex that `hop` added in this warp's share, which is the same at every hop.
  __device__ uint32_t& first_rank(int hop) const {
    auto* const behind =
        reinterpret_cast<uint32_t*>(this->template warp_totals<Counts>() + int64_t{kMaxBlocks} * kWarps);
    return behind[this->warp() * kMaxHops + hop - 1];
  }
  static_assert(sizeof(Counts) * (1 + kWarps) + sizeof(uint32_t) * kWarps * kMaxHops <=
                    sizeof(uint32_t) * workspace_totals() / kMaxBlocks,
                "the totals have room for both");

  template <int Width>
  struct alignas(16) RanksOfWord {
    Rank of_hop[Width];

    // The local id of `u` if one of these hops added it, else kNone.
    __device__ __forceinline__ uint32_t id(N u) const {
      const uint32_t bit = 1u << u % 32;
      uint32_t found = kNone;
#pragma unroll
      for (const Rank& rank : of_hop)
        if (rank.bits & bit) found = rank.first + __popc(rank.bits & (bit - 1));
      return found;
    }
  };
  static constexpr uint32_t kNone = ~0u;

  // [num_words], from hop `above` + 1 on. Those of the last hops come first: they have the most vertices.
  template <int Width>
  __device__ RanksOfWord<Width>* ranks(int above) const {
    uint32_t* const all = this->reached(0) + ranks_at(this->num_words(), args.hops);
    return reinterpret_cast<RanksOfWord<Width>*>(all) +
           (above == hops_before_last<Width>() ? 0 : this->num_words());
  }

  // How many hops come before the last `Width` ones.
  template <int Width>
  __device__ int hops_before_last() const {
    return max(args.hops - Width, 0);
  }

  // After all hops: the ranks of this warp's share, all of them, and empty bitmaps.
  template <int Width>
  __device__ void write_ranks() const {
    const Share tiles = share(this->num_tiles(), this->warps(), this->warp());
    __syncwarp();
#pragma unroll 1
    for (int end = args.hops; end > 0; end -= Width) {
      const int above = max(end - Width, 0), hops = end - above;
      RanksOfWord<Width>* const out = ranks<Width>(above);
      uint32_t first_of[Width];
#pragma unroll
      for (int h = 0; h < Width; ++h) first_of[h] = h < hops ? first_rank(above + h + 1) : 0;
      for (int64_t first = tiles.begin; first < tiles.end; first += kTilesPerLoad) {
        const int64_t index = first * kTileWords + lane;
        const bool inside = index < min(tiles.end * kTileWords, this->num_words());
        RanksOfWord<Width> word;
        uint32_t before[Width], sum[Width];
#pragma unroll
        for (int h = 0; h < Width; ++h) {
          word.of_hop[h].bits = h < hops ? this->load_words(fresh(above + h + 1), first, tiles.end) : 0;
          before[h] = __popc(word.of_hop[h].bits);
        }
        warp_exclusive(before, sum);
#pragma unroll
        for (int h = 0; h < Width; ++h) {
          word.of_hop[h].first = first_of[h] + before[h];
          first_of[h] += sum[h];
          if (word.of_hop[h].bits) fresh(above + h + 1)[index] = 0;
        }
        if (!inside) continue;
        out[index] = word;
        if (seen()[index]) seen()[index] = 0;
      }
    }
  }

  // Of a vertex that the last four hops did not add, when there are more. Out of line, since few samplers
  // have more.
  static __device__ __noinline__ uint32_t id_beyond(const RanksOfWord<4>* ranks, N u) {
    return ranks[u / 32].id(u);
  }

  // From a vertex to its local id, once the ranks are written.
  template <int Width>
  struct RankLookup {
    using Found = RanksOfWord<Width>;
    static constexpr int kLoads = 2;  // as many as registers hold
    const HopwisePhases& phases;
    const Found* ranks = phases.template ranks<Width>(phases.template hops_before_last<Width>());

    __device__ Found find(N u) const { return ranks[u / 32]; }
    __device__ N id(const Found& found, N u) const {
      uint32_t id = found.id(u);
      if constexpr (Width == 4)
        if (id == kNone && phases.args.hops > 4) id = id_beyond(phases.template ranks<4>(0), u);
      return id != kNone ? static_cast<N>(id)
                         : phases.local()[u];  // no hop added the seeds, in their own order
    }
  };
};

}  // namespace loader
