// What the sampling hop by hop does whatever the kind of vertex set: the picks of a hop, prefix sums over the
// counts of warps, and global to local ids at the end.
#pragma once

#include "sampler/cuda/batch_memory.cuh"
#include "sampler/cuda/device_pick.cuh"

namespace loader {

// What is counted if vertices are found and made rows at once.
struct Counts {
  int64_t old_edges, fresh, fresh_edges;

  __device__ Counts& operator+=(const Counts& other) {
    old_edges += other.old_edges;
    fresh += other.fresh;
    fresh_edges += other.fresh_edges;
    return *this;
  }
};

__device__ __forceinline__ Counts warp_sum(const Counts& c) {
  return {warp_sum(c.old_edges), warp_sum(c.fresh), warp_sum(c.fresh_edges)};
}

// `Sets` marks the vertices that are picked:
//
//   note(hop, u, count)      the first `count` picks of each lane; `u` becomes what `indices` holds until
//                            `relabel` looks up local ids by it
//   note_one(hop, u, valid)  the same for one pick of each lane that has one; returns what becomes of it
//
// Both are called by all lanes of a warp.
template <typename Sets>
struct Picking : Sets {
  using P = typename Sets::Edge;
  using N = typename Sets::Vertex;
  using Sets::args;
  using Sets::block;
  using Sets::blocks;
  using Sets::lane;
  using Sets::Sets;
  static constexpr bool kScans = Sets::kScans;

  // `T` is what is counted: Counts, or edges only, int64_t.
  template <typename T>
  __device__ T* block_totals() const {
    return reinterpret_cast<T*>(args.totals + this->slot * workspace_totals());
  }
  template <typename T>
  __device__ T* warp_totals() const {
    return block_totals<T>() + kMaxBlocks;
  }

  // `own`: where the edges of a lane's row begin. `begin`: where those of its warp's rows begin. `count`: how
  // many edges the warp has.
  struct Edges {
    P own, begin;
    uint32_t count;
  };

  // Writes what a warp's rows picked. `t`: the `count` positions that the lane's row picked of its list, from
  // `begin` on. `stage`: of the warp, for the neighbors, which it writes in the order of the edges.
  template <int K>
  __device__ void write_picks(int hop, P begin, const uint32_t (&t)[K], uint32_t count, const Edges& edges,
                              N* stage) const {
    P* const edge_ids = args.edge_ids ? this->edge_ids(hop) : nullptr;
    N* const indices = this->indices(hop);
    if (edge_ids) {
#pragma unroll
      for (int i = 0; i < K; ++i)
        if (i < static_cast<int>(count)) edge_ids[edges.own + i] = begin + static_cast<P>(t[i]);
    }
    N u[K];
#pragma unroll
    for (int i = 0; i < K; ++i)
      if (i < static_cast<int>(count)) u[i] = this->lists().read(begin, t[i]);
    this->note(hop, u, count);
    N* const mine = stage + (edges.own - edges.begin);
#pragma unroll
    for (int i = 0; i < K; ++i)
      if (i < static_cast<int>(count)) mine[i] = u[i];
    __syncwarp();
    for (uint32_t i = lane; i < edges.count; i += 32) indices[edges.begin + i] = stage[i];
    __syncwarp();
  }

  // Picks of hop `hop` for the first `rows` vertices. `stage`: kWarps * stage_entries<K>() of shared memory.
  template <int K>
  __device__ void pick(int hop, int64_t rows, N* stage) const {
    const P* const indptr = this->indptr(hop);
    const auto fanout = static_cast<uint32_t>(args.fanouts[hop - 1]);
    stage += threadIdx.x / 32 * 32 * K;
    // Neighboring groups of rows go to different multiprocessors: few rows are spread over all of them.
    const int64_t first = int64_t{threadIdx.x / 32} * blocks + block;
    for (int64_t group = first; group * 32 < rows; group += this->warps()) {
      const int64_t row = group * 32 + lane;
      const bool valid = row < rows;
      const int64_t v = valid ? int64_t{this->nodes()[row]} : 0;
      const P begin = valid ? this->row_begin()[row] : 0;
      const uint32_t degree = valid ? this->row_degree()[row] : 0;
      const P out = valid ? indptr[row] : 0;
      const P out_begin = __shfl_sync(kFullMask, out, 0);
      const auto out_count = static_cast<uint32_t>(indptr[min(rows, group * 32 + 32)] - out_begin);

      uint32_t t[K];
      const Draws draws = this->draws({v}, hop);
      const uint32_t count = pick_row<K>(args.choice, this->lists(), begin, degree, draws, fanout, t);
      this->write_picks(hop, begin, t, count, {out, out_begin, out_count}, stage);
    }
  }

  // The same for fanouts beyond the registers. `stage`: kWarps * widest_fanout() entries. Calls
  // `put(row, begin, i, out, valid)` with entry `i` of the list of `row`, from `begin` on, as edge `out`.
  template <typename Put>
  __device__ void pick_wide(int hop, int64_t rows, uint32_t* stage, const Put& put) const {
    const int64_t fanout = args.fanouts[hop - 1];
    stage += threadIdx.x / 32 * fanout;
    const auto draws = [&](int64_t row) { return this->draws({this->nodes()[row]}, hop); };
    for_each_group(rows, [&](int64_t first, int64_t row, bool valid) {
      const uint32_t degree = valid ? this->row_degree()[row] : 0;
      const P begin = valid ? this->row_begin()[row] : 0;
      pick_group(first, {begin, begin + static_cast<P>(degree)}, this->count_of(degree, hop),
                 args.choice.whole(degree, fanout), valid ? this->indptr(hop)[row] : 0, stage, draws, put);
    });
  }

  // Deals out `rows` rows in groups of at most 32, and of fewer if warps had no group otherwise. For each
  // group of this warp, all lanes call `f(first, row, valid)`. `row` is the lane's, if that is `valid`.
  template <typename F>
  __device__ void for_each_group(int64_t rows, const F& f) const {
    const int64_t each = max(int64_t{1}, min(int64_t{32}, (rows + this->warps() - 1) / this->warps()));
    for (int64_t first = this->warp() * each; first < rows; first += this->warps() * each)
      f(first, first + lane, lane < each && first + lane < rows);
  }

  // Picks of a group of rows by a warp, see `pick_wide`: of lane i, `count` entries of `list` become edges
  // from `out` on. Entries of lists that are picked whole are shared out to the lanes, whose loads are under
  // way together; the other lists come one after the other. `draws(row)`: those of a row.
  template <typename DrawsOf, typename Put>
  __device__ void pick_group(int64_t first, const ListOf<P>& list, uint32_t count, bool whole, P out,
                             uint32_t* stage, const DrawsOf& draws, const Put& put) const {
    uint32_t entries;
    const uint32_t before = warp_exclusive(whole ? count : 0, entries);
    for (uint32_t e = lane; e - lane < entries; e += 32) {
      int from = 0;  // the last lane whose entries begin at `e` or before
#pragma unroll
      for (int step = 16; step > 0; step /= 2)
        if (__shfl_sync(kFullMask, before, from + step) <= e) from += step;
      const uint32_t i = e - __shfl_sync(kFullMask, before, from);
      put(first + from, __shfl_sync(kFullMask, list.begin, from), static_cast<P>(i),
          static_cast<P>(__shfl_sync(kFullMask, out, from) + i), e < entries);
    }
    for (uint32_t left = __ballot_sync(kFullMask, !whole && count > 0); left; left &= left - 1) {
      const int from = __ffs(static_cast<int>(left)) - 1;
      const P begin = __shfl_sync(kFullMask, list.begin, from), to = __shfl_sync(kFullMask, out, from);
      const uint32_t degree = __shfl_sync(kFullMask, list.degree(), from);
      const uint32_t drawn = __shfl_sync(kFullMask, count, from);
      pick_row_by_warp(args.choice, this->lists(), begin, degree, draws(first + from), drawn, stage);
      for (uint32_t i = lane; i - lane < drawn; i += 32) {
        const bool valid = i < drawn;
        put(first + from, begin, static_cast<P>(stage[valid ? i : 0]), static_cast<P>(to + i), valid);
      }
      __syncwarp();
    }
  }

  // All neighbors: the edges, not the rows, are shared out, so that a hub's list is read by many warps.
  template <typename Put>
  __device__ void pick_all(int hop, int64_t rows, int64_t edges, const Put& put) const {
    constexpr int64_t kChunk = 256;
    const P* const indptr = this->indptr(hop);
    for (int64_t chunk = this->warp(); chunk * kChunk < edges; chunk += this->warps()) {
      const int64_t begin = chunk * kChunk, end = min(edges, begin + kChunk);
      const int64_t first = row_of(indptr, 0, rows, begin), last = row_of(indptr, first, rows, end - 1);
      for (int64_t e = begin + lane; e - lane < end; e += 32) {
        const bool valid = e < end;
        const int64_t row = row_of(indptr, first, last + 1, valid ? e : begin);
        put(row, this->row_begin()[row], static_cast<P>(e - indptr[row]), static_cast<P>(e), valid);
      }
    }
  }

  // The row in [low, high) that holds edge `e`.
  template <typename T>
  __device__ int64_t row_of(const T* indptr, int64_t low, int64_t high, int64_t e) const {
    while (high - low > 1) {
      const int64_t mid = (low + high) / 2;
      if (indptr[mid] <= e)
        low = mid;
      else
        high = mid;
    }
    return low;
  }

  // What `pick_wide` and `pick_all` do with a pick, if it is read at once.
  __device__ auto taking(int hop) const {
    return
        [this, hop](int64_t /*row*/, P begin, P i, P out, bool valid) { take(hop, begin + i, out, valid); };
  }

  // Writes the neighbor at `position` of the graph's indices as edge `out` and marks it, on lanes that are
  // `valid`.
  __device__ void take(int hop, P position, P out, bool valid) const {
    const N place = this->note_one(hop, valid ? this->lists().read(position) : 0, valid);
    if (!valid) return;
    this->indices(hop)[out] = place;
    if (args.edge_ids) this->edge_ids(hop)[out] = position;
  }

  // The counts of a warp, and of its block, for `prefix`. `partial`: kWarps entries of shared memory.
  template <typename T>
  __device__ void write_totals(T mine, T* partial) const {
    mine = warp_sum(mine);
    if (lane == 0) {
      partial[threadIdx.x / 32] = mine;
      warp_totals<T>()[this->warp()] = mine;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      T c = lane < kWarps ? partial[lane] : T{};
      c = warp_sum(c);
      if (lane == 0) block_totals<T>()[block] = c;
    }
    __syncthreads();
  }

  // Sums of all warps before this one, and of all warps. Every thread of the grid gets the same total.
  template <typename T>
  __device__ void prefix(T& before, T& total) const {
    __shared__ T shared_before[kWarps], shared_total[kWarps];
    T b{}, t{};
    for (int i = threadIdx.x; i < blocks; i += kBlock) {
      const T c = block_totals<T>()[i];
      t += c;
      if (i < block) b += c;
    }
    b = warp_sum(b);
    t = warp_sum(t);
    if (lane == 0) {
      shared_before[threadIdx.x / 32] = b;
      shared_total[threadIdx.x / 32] = t;
    }
    __syncthreads();
    const int own = threadIdx.x / 32;
    before = lane < kWarps ? shared_before[lane] : T{};
    total = lane < kWarps ? shared_total[lane] : T{};
    if (static_cast<int>(lane) < own) before += warp_totals<T>()[int64_t{block} * kWarps + lane];
    before = warp_sum(before);
    total = warp_sum(total);
    __syncthreads();
  }

  // Edges of a row at `hop`.
  __device__ uint32_t picks_of_row(int64_t row, int hop) const {
    if constexpr (kScans) {
      return this->row_picks()[row];
    } else {
      LOADER_READS_ROW(this->row_degree() + row);
      return this->count_of(this->row_degree()[row], hop);
    }
  }

  // A warp's share of `rows` rows, of which it takes 32 at a time.
  __device__ Share own_groups(int64_t rows) const {
    return share((rows + 31) / 32, this->warps(), this->warp());
  }

  // Edges of hop + 1 of the warp's share of the first `rows` rows: the lane's part of them.
  __device__ int64_t edges_of_rows(int hop, int64_t rows) const {
    const Share groups = own_groups(rows);
    int64_t edges = 0;
#pragma unroll 1
    for (int64_t row = groups.begin * 32 + lane; row < min(groups.end * 32, rows); row += 32)
      edges += picks_of_row(row, hop + 1);
    return edges;
  }

  // Writes the indptr of hop + 1 for that share. `at`: edges of all rows before it.
  __device__ void write_indptr(int hop, int64_t rows, int64_t at) const {
    P* const indptr = this->indptr(hop + 1);
    const Share groups = own_groups(rows);
#pragma unroll 1
    for (int64_t group = groups.begin; group < groups.end; ++group) {
      const int64_t row = group * 32 + lane;
      uint32_t sum;
      const uint32_t offset = warp_exclusive(row < rows ? picks_of_row(row, hop + 1) : 0, sum);
      if (row < rows) indptr[row] = static_cast<P>(at + offset);
      at += sum;
    }
  }

  // Once all vertices known after `hop` are rows, with the picks that each has at hop + 1 known: counts them
  // for `assign_rows`. Ends with the block's total written.
  __device__ void count_rows(int hop, int64_t rows) const {
    __shared__ int64_t partial[kWarps];
    if (kScans && this->thread() == 0) this->state().head.value = 0;  // the scan's tickets
    write_totals(edges_of_rows(hop, rows), partial);
  }

  // Writes the indptr of hop + 1; `edges` becomes its size. False where the outputs are too small: nothing
  // was written then.
  __device__ bool assign_rows(int hop, int64_t rows, int64_t& edges) const {
    int64_t before;
    prefix(before, edges);
    const bool fits = rows <= args.frontier_capacity[hop] && edges <= args.edge_capacity[hop];
    if (this->thread() == 0) {
      if (hop == 0) this->header().frontiers[0] = rows;
      this->header().edges[hop] = edges;
      this->header().hops_done = hop;
      if (!fits) {
        this->fail(SampleStatus::kOverflow, 0);
        this->publish();
      }
    }
    if (!fits) return false;
    write_indptr(hop, rows, before);
    if (this->warp() == this->warps() - 1 && lane == 0) this->indptr(hop + 1)[rows] = static_cast<P>(edges);
    return true;
  }

  // What `indices` holds to local ids, for all edges. `lookup.id(lookup.find(u), u)` is that of `u`; a thread
  // finds several before it looks at the first, from `Lookup::kLoads` loads.
  template <typename Lookup>
  __device__ void relabel(const Lookup& lookup) const {
    for (int hop = 1; hop <= args.hops; ++hop) relabel(hop, this->header().edges[hop - 1], lookup);
  }

  // The same for the `edges` edges of `hop`. Sixteen bytes a load; `indices` is aligned to them.
  template <typename Lookup>
  __device__ void relabel(int hop, int64_t edges, const Lookup& lookup) const {
    constexpr int kEach = 16 / sizeof(N);
    constexpr int kLoads = Lookup::kLoads;
    struct alignas(16) Pack {
      N u[kEach];
    };
    N* const indices = this->indices(hop);
    auto* const packs = reinterpret_cast<Pack*>(indices);
    const int64_t num_packs = edges / kEach;
    const int64_t thread = this->thread(), threads = this->threads();
    for (int64_t i = thread; i < num_packs; i += kLoads * threads) {
      Pack pack[kLoads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        if (i + l * threads < num_packs) pack[l] = packs[i + l * threads];
      typename Lookup::Found found[kLoads * kEach];
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        if (i + l * threads < num_packs)
#pragma unroll
          for (int k = 0; k < kEach; ++k) found[l * kEach + k] = lookup.find(pack[l].u[k]);
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        if (i + l * threads < num_packs)
#pragma unroll
          for (int k = 0; k < kEach; ++k) pack[l].u[k] = lookup.id(found[l * kEach + k], pack[l].u[k]);
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        if (i + l * threads < num_packs) packs[i + l * threads] = pack[l];
    }
    const int64_t rest = num_packs * kEach + thread;
    if (rest < edges) indices[rest] = lookup.id(lookup.find(indices[rest]), indices[rest]);
  }
};

}  // namespace loader
