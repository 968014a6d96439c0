// The sampling hop by hop in phases, with a barrier of the whole grid after each:
//
//   pick    a thread a row: picks, reads the neighbours, writes their global ids, marks the new ones
//   count   new vertices, and edges of the next hop, of each warp's share of the bitmap and of the old rows
//   assign  prefix sums over those counts: local ids in ascending order of vertex, the next hop's indptr
//
// and `relabel` at the end. The rows of old vertices come first, so everything is a prefix sum in warp order.
// A barrier is the end of a kernel, or one of the grid in a cooperative launch.
#pragma once

#include "sampler/cuda/device_pick.cuh"
#include "sampler/cuda/space.cuh"

namespace loader {

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

template <typename P, typename N>
struct HopwisePhases : Space<P, N> {
  using Space<P, N>::Space;
  using Space<P, N>::args;
  using Space<P, N>::block;
  using Space<P, N>::blocks;
  using Space<P, N>::lane;

  __device__ uint32_t* seen() const { return this->reached(0); }   // vertices of the frontier so far
  __device__ uint32_t* fresh() const { return this->reached(1); }  // vertices found at this hop
  __device__ Counts* block_totals() const {
    return reinterpret_cast<Counts*>(args.totals + this->slot * workspace_totals());
  }
  __device__ Counts* warp_totals() const { return block_totals() + kMaxBlocks; }

  // Marks the seeds and makes them the first frontier. Warps take the same rows as in `count`.
  __device__ void start() const {
    const Share groups = share((this->num_seeds() + 31) / 32, this->warps(), this->warp());
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

  // Picks of hop `hop` for the first `rows` vertices. `stage`: kWarps * stage_entries<K>() of shared memory.
  template <int K>
  __device__ void pick(int hop, int64_t rows, N* stage) const {
    const P* const indptr = this->indptr(hop);
    N* const indices = this->indices(hop);
    P* const edge_ids = args.edge_ids ? this->edge_ids(hop) : nullptr;
    const auto fanout = static_cast<uint32_t>(args.fanouts[hop - 1]);
    stage += threadIdx.x / 32 * 32 * K;
    // Neighbouring groups of rows go to different multiprocessors: few rows are spread over all of them.
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
      const Draws draws{this->batch().key, static_cast<uint64_t>(v), static_cast<uint32_t>(hop)};
      const uint32_t count = pick_registers<K>(draws, degree, fanout, args.replace, t);
      if (edge_ids) {
#pragma unroll
        for (int i = 0; i < K; ++i)
          if (i < static_cast<int>(count)) edge_ids[out + i] = begin + static_cast<P>(t[i]);
      }
      N u[K];
#pragma unroll
      for (int i = 0; i < K; ++i)
        if (i < static_cast<int>(count)) u[i] = __ldg(args.graph_indices + begin + t[i]);
      uint32_t known[K];
#pragma unroll
      for (int i = 0; i < K; ++i)
        if (i < static_cast<int>(count)) known[i] = seen()[u[i] / 32];
      N* const mine = stage + (out - out_begin);
#pragma unroll
      for (int i = 0; i < K; ++i) {
        if (i < static_cast<int>(count)) {
          mine[i] = u[i];
          const uint32_t bit = 1u << u[i] % 32;
          if (!(known[i] & bit)) atomicOr(&fresh()[u[i] / 32], bit);
        }
      }
      __syncwarp();
      for (uint32_t i = lane; i < out_count; i += 32) indices[out_begin + i] = stage[i];
      __syncwarp();
    }
  }

  // The same for fanouts beyond the registers: a warp a row. `stage`: kWarps * kMaxFanout entries.
  __device__ void pick_wide(int hop, int64_t rows, uint32_t* stage) const {
    stage += threadIdx.x / 32 * kMaxFanout;
    for (int64_t row = this->warp(); row < rows; row += this->warps()) {
      const uint32_t degree = this->row_degree()[row];
      const uint32_t count = this->count_of(degree, hop);
      const P begin = this->row_begin()[row], out = this->indptr(hop)[row];
      const bool all = picks_all(degree, args.fanouts[hop - 1], args.replace);
      if (!all && count > 0)
        pick_warp({this->batch().key, static_cast<uint64_t>(this->nodes()[row]), static_cast<uint32_t>(hop)},
                  degree, count, args.replace, stage);
      for (uint32_t i = lane; i < count; i += 32)
        take(hop, begin + static_cast<P>(all ? i : stage[i]), out + i);
      __syncwarp();
    }
  }

  // All neighbours: the edges, not the rows, are shared out, so that a hub's list is read by many warps.
  __device__ void pick_all(int hop, int64_t rows, int64_t edges) const {
    constexpr int64_t kChunk = 256;
    const P* const indptr = this->indptr(hop);
    for (int64_t chunk = this->warp(); chunk * kChunk < edges; chunk += this->warps()) {
      const int64_t begin = chunk * kChunk, end = min(edges, begin + kChunk);
      const int64_t first = row_of(indptr, 0, rows, begin), last = row_of(indptr, first, rows, end - 1);
      for (int64_t e = begin + lane; e < end; e += 32) {
        const int64_t row = row_of(indptr, first, last + 1, e);
        take(hop, this->row_begin()[row] + static_cast<P>(e - indptr[row]), static_cast<P>(e));
      }
    }
  }

  // The row in [low, high) that holds edge `e`.
  __device__ int64_t row_of(const P* indptr, int64_t low, int64_t high, int64_t e) const {
    while (high - low > 1) {
      const int64_t mid = (low + high) / 2;
      if (indptr[mid] <= e)
        low = mid;
      else
        high = mid;
    }
    return low;
  }

  // Writes the neighbour at `position` of the graph's indices as edge `out` and marks it.
  __device__ void take(int hop, P position, P out) const {
    const N u = args.graph_indices[position];
    const uint32_t bit = 1u << u % 32;
    if (!(seen()[u / 32] & bit)) atomicOr(&fresh()[u / 32], bit);
    this->indices(hop)[out] = u;
    if (args.edge_ids) this->edge_ids(hop)[out] = position;
  }

  // Counts for `assign(hop, ...)`: hop 0 counts the seeds' rows alone. Ends with the block's total written.
  __device__ void count(int hop, int64_t rows) const {
    __shared__ Counts partial[kWarps];
    const bool next = hop < args.hops;
    Counts mine{0, 0, 0};
    if (next) {
      const Share groups = share((rows + 31) / 32, this->warps(), this->warp());
      for (int64_t row = groups.begin * 32 + lane; row < min(groups.end * 32, rows); row += 32)
        mine.old_edges += this->count_of(this->row_degree()[row], hop + 1);
    }
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
    mine = warp_sum(mine);
    if (lane == 0) {
      partial[threadIdx.x / 32] = mine;
      warp_totals()[this->warp()] = mine;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      Counts c = lane < kWarps ? partial[lane] : Counts{0, 0, 0};
      c = warp_sum(c);
      if (lane == 0) block_totals()[block] = c;
    }
    __syncthreads();
  }

  // Sums of all warps before this one, and of all warps. Every thread of the grid gets the same total.
  __device__ void prefix(Counts& before, Counts& total) const {
    __shared__ Counts shared_before[kWarps], shared_total[kWarps];
    Counts b{0, 0, 0}, t{0, 0, 0};
    for (int i = threadIdx.x; i < blocks; i += kBlock) {
      const Counts c = block_totals()[i];
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
    before = lane < kWarps ? shared_before[lane] : Counts{0, 0, 0};
    total = lane < kWarps ? shared_total[lane] : Counts{0, 0, 0};
    if (static_cast<int>(lane) < own) before += warp_totals()[int64_t{block} * kWarps + lane];
    before = warp_sum(before);
    total = warp_sum(total);
    __syncthreads();
  }

  // Gives the vertices found at `hop` their local ids and writes the indptr of hop + 1. `rows` becomes the
  // size of the frontier, `edges` that of hop + 1. False where the outputs are too small: nothing was written
  // then.
  __device__ bool assign(int hop, int64_t& rows, int64_t& edges) const {
    const bool next = hop < args.hops;
    Counts before, total;
    prefix(before, total);
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
    if (next) {
      const Share groups = share((old_rows + 31) / 32, this->warps(), this->warp());
      int64_t at = before.old_edges;
      for (int64_t group = groups.begin; group < groups.end; ++group) {
        const int64_t row = group * 32 + lane;
        uint32_t sum;
        const uint32_t offset =
            warp_exclusive(row < old_rows ? this->count_of(this->row_degree()[row], hop + 1) : 0, sum);
        if (row < old_rows) indptr[row] = static_cast<P>(at + offset);
        at += sum;
      }
    }
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

  // Global to local ids, for the `edges` edges of `hop`. Sixteen bytes a load; `indices` is aligned to them.
  __device__ void relabel(int hop, int64_t edges) const {
    constexpr int kEach = 16 / sizeof(N);
    constexpr int kLoads = 2;
    struct alignas(16) Pack {
      N u[kEach];
    };
    N* const indices = this->indices(hop);
    auto* const packs = reinterpret_cast<Pack*>(indices);
    const int64_t num_packs = edges / kEach;
    const int64_t threads = int64_t{blocks} * kBlock;
    const int64_t thread = int64_t{block} * kBlock + threadIdx.x;
    for (int64_t i = thread; i < num_packs; i += kLoads * threads) {
      Pack pack[kLoads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        if (i + l * threads < num_packs) pack[l] = packs[i + l * threads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        if (i + l * threads < num_packs)
#pragma unroll
          for (int k = 0; k < kEach; ++k) pack[l].u[k] = this->local()[pack[l].u[k]];
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        if (i + l * threads < num_packs) packs[i + l * threads] = pack[l];
    }
    const int64_t rest = num_packs * kEach + thread;
    if (rest < edges) indices[rest] = this->local()[indices[rest]];
  }
};

}  // namespace loader
