// The sampling hop by hop with a hash set, in phases with a barrier after each:
//
//   pick    as with bitmaps: the rows' neighbors, of which `indices` holds the places in the table
//   group   prefix sums over the ranges; the vertices found at this hop move to their range
//   rank    order within the ranges: local ids in ascending order of vertex
//   count   edges of the next hop of each warp's share of the rows
//   assign  prefix sums over those: the next hop's indptr
//
// and `relabel` at the end. A barrier is the end of a kernel, or one of the grid in a cooperative launch.
// Nothing is as long as the graph.
#pragma once

#include "sampler/cuda/hash_set.cuh"
#include "sampler/cuda/picking.cuh"

namespace loader {

// If a range has at most this many vertices, each of them is compared with all others.
#ifndef LOADER_SAMPLER_COMPARED
#define LOADER_SAMPLER_COMPARED 512
#endif
constexpr uint32_t kMostCompared = LOADER_SAMPLER_COMPARED;

static_assert(kRanges % kBlock == 0, "a thread takes whole ranges");

template <typename Args>
struct HashedPhases : Picking<HashSet<Args>> {
  using P = typename Args::Edge;
  using N = typename Args::Vertex;
  using Base = Picking<HashSet<Args>>;
  using Base::args;
  using Base::Base;
  using Base::block;
  using Base::blocks;
  using Base::lane;
  static constexpr bool kHashed = true;

  // Puts the seeds into the set and makes them the first frontier. Warps take the same rows as in `count`.
  __device__ void start() const {
    const Share groups = this->own_groups(this->num_seeds());
    for (int64_t i = groups.begin * 32 + lane; i < min(groups.end * 32, this->num_seeds()); i += 32) {
      const N v[1] = {this->seeds()[i]};
      uint32_t at[1] = {0};
      this->places()[i] = 0;
      if constexpr (!Base::kHetero) {
        LOADER_WRITES_ROW(this->row_degree() + i);
        this->row_degree()[i] = 0;  // `count` reads it whatever the seed
      }
      if (!this->check_seed(v[0])) continue;
      if (!this->insert(v, 1, at)) this->fail(SampleStatus::kSeedDuplicate, v[0]);
      this->places()[i] = at[0];
      place(i, v[0], at[0], list_of(v[0], !Base::kHetero), !Base::kHetero);
    }
  }

  using List = ListOf<P>;

  // Where the neighbors of a vertex lie, if it has a `next` hop to sample them.
  __device__ List list_of(N v, bool next) const {
    if constexpr (Base::kHetero)
      return {0, 0};
    else
      return next ? this->lists().list({v}) : List{0, 0};
  }

  // Makes a vertex row `row`.
  __device__ void place(int64_t row, N v, uint32_t at, const List& list, bool next) const {
    this->nodes()[row] = v;
    this->local()[at] = static_cast<N>(row);
    if (Base::kHetero || !next) return;
    LOADER_WRITES_ROW(this->row_degree() + row);
    this->row_begin()[row] = list.begin;
    this->row_degree()[row] = list.degree();
    if constexpr (Base::kScans) this->cut_list(row, list.degree());
  }

  // Moves the vertices found at `hop` to their ranges. `rows` becomes the size of the frontier. False where
  // it is too large. `begin`: kRanges entries of shared memory.
  __device__ bool group(int hop, int64_t& rows, uint32_t* begin) const {
    const int64_t old_rows = rows;
    rows = this->size();
    const bool fits = rows <= min(args.frontier_capacity[hop], args.hash.capacity);
    if (this->thread() == 0) {
      this->header().frontiers[hop] = min(rows, args.hash.size);  // beyond that it is no number of vertices
      if (hop < args.hops) this->header().edges[hop] = -1;        // not known before `assign`
      this->header().hops_done = hop;
      if (!fits) this->fail(SampleStatus::kOverflow, 0);
      // The last sizes are known: the host goes on while the blocks are written.
      if ((hop == args.hops && !Base::kHetero) || !fits) this->publish();
    }
    if (!fits) return false;
    scan_ranges(begin);
    for (int64_t i = old_rows + this->thread(); i < rows; i += this->threads()) {
      const N v = this->found()[i];
      const uint32_t to = begin[v >> args.hash.shift] + this->offsets()[i];
      this->grouped()[to] = v;
      this->grouped_place()[to] = this->places()[i];
    }
    return true;
  }

  // Every block has all sums for itself, which saves a barrier, and writes its share of them for `rank`. A
  // warp takes ranges that follow each other, 32 at a time.
  __device__ void scan_ranges(uint32_t* begin) const {
    constexpr int kEach = kRanges / kBlock;
    __shared__ bool any_full;
    if (threadIdx.x == 0) any_full = false;
    const int first = static_cast<int>(threadIdx.x / 32) * 32 * kEach + static_cast<int>(lane);
    uint32_t count[kEach], sum[kEach], of_warp = 0, total;
#pragma unroll
    for (int i = 0; i < kEach; ++i) count[i] = this->counts()[first + 32 * i];
    bool full = false;
#pragma unroll
    for (int i = 0; i < kEach; ++i) full |= count[i] > kMostCompared;
    warp_exclusive(count, sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) of_warp += sum[i];
    uint32_t at = __shfl_sync(kFullMask, block_exclusive(lane == 0 ? of_warp : 0, total), 0);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      begin[first + 32 * i] = at + count[i];
      at += sum[i];
    }
    if (full) any_full = true;
    __syncthreads();
#pragma unroll 1
    for (int64_t r = this->thread(); r < kRanges; r += this->threads()) this->begins()[r] = begin[r];
    if (this->thread() == 0) {
      this->begins()[kRanges] = total;
      this->begins()[kRanges + 1] = any_full;
    }
  }

  // Gives the vertices found at `hop` their local ids: rows `old_rows` to `rows`. `words`: 2 * kWindowWords
  // entries of shared memory.
  __device__ void rank(int hop, int64_t old_rows, int64_t rows, uint32_t* words) const {
    constexpr int kEach = 16 / sizeof(N);
    struct alignas(16) Pack {
      N u[kEach];
    };
    const bool next = hop < args.hops, any_full = this->begins()[kRanges + 1];
#pragma unroll 1
    for (int64_t r = this->thread(); r < kRanges; r += this->threads()) this->counts()[r] = 0;
    for (int64_t i = this->thread(); i < rows - old_rows; i += this->threads()) {
      const N v = this->grouped()[i];
      const uint32_t at = this->grouped_place()[i];
      const List list = list_of(v, next);  // far away: on its way while the vertices are compared
      const uint32_t* const begins = this->begins() + (v >> args.hash.shift);
      const uint32_t begin = begins[0], end = begins[1];
      if (end - begin > kMostCompared) continue;
      // Loads of 16 bytes. Those of the ranges before that the first one brings are smaller: they count, too.
      const uint32_t first = begin / kEach * kEach;
      uint32_t smaller = 0;
#pragma unroll 4
      for (uint32_t j = first; j < end; j += kEach) {
        const Pack pack = *reinterpret_cast<const Pack*>(this->grouped() + j);
#pragma unroll
        for (int k = 0; k < kEach; ++k) smaller += j + k < end && pack.u[k] < v;
      }
      place(old_rows + first + smaller, v, at, list, next);
    }
    if (any_full) rank_full_ranges(old_rows, next, words);
  }

  // The ranges with more vertices than are compared, each by a whole block.
  __device__ void rank_full_ranges(int64_t old_rows, bool next, uint32_t* words) const {
    __shared__ int num_full;
    __shared__ int full[kBlock];
    for (int first = 0; first < kRanges; first += blocks * kBlock) {
      const int r = first + static_cast<int>(threadIdx.x) * blocks + block;
      if (threadIdx.x == 0) num_full = 0;
      __syncthreads();
      if (r<kRanges&& this->begins()[r + 1] - this->begins()[r]> kMostCompared)
        full[atomicAdd(&num_full, 1)] = r;
      __syncthreads();
      for (int i = 0; i < num_full; ++i) rank_full(full[i], old_rows, next, words);
      __syncthreads();
    }
  }

  __device__ void rank_full(int r, int64_t old_rows, bool next, uint32_t* words) const {
    uint32_t* const before = words + kWindowWords;
    const uint32_t begin = this->begins()[r], end = this->begins()[r + 1];
    const int64_t ids = int64_t{1} << args.hash.shift;
    int64_t row = old_rows + begin;
    for (int64_t low = 0; low < ids; low += kWindowWords * 32) {
      const int64_t first = r * ids + low;
      const auto num_words = static_cast<int>(min((ids - low + 31) / 32, int64_t{kWindowWords}));
      const auto bit_of = [&](int64_t v) { return static_cast<uint64_t>(v - first); };
      const auto num_bits = static_cast<uint64_t>(num_words) * 32;
#pragma unroll 1
      for (int w = threadIdx.x; w < num_words; w += kBlock) words[w] = 0;
      __syncthreads();
      for (uint32_t i = begin + threadIdx.x; i < end; i += kBlock) {
        const uint64_t bit = bit_of(this->grouped()[i]);
        if (bit < num_bits) atomicOr(&words[bit / 32], 1u << bit % 32);
      }
      __syncthreads();
      const uint32_t total = scan_window(words, before, num_words);
      __syncthreads();
      for (uint32_t i = begin + threadIdx.x; i < end; i += kBlock) {
        const N v = this->grouped()[i];
        const uint64_t bit = bit_of(v);
        if (bit >= num_bits) continue;
        const uint32_t smaller = before[bit / 32] + __popc(words[bit / 32] & ((1u << bit % 32) - 1));
        place(row + smaller, v, this->grouped_place()[i], list_of(v, next), next);
      }
      row += total;
      __syncthreads();
    }
  }

  // The number of set bits before each word; returns that of all.
  __device__ static uint32_t scan_window(const uint32_t* words, uint32_t* before, int num_words) {
    const int each = (num_words + kBlock - 1) / kBlock;
    const int first = static_cast<int>(threadIdx.x) * each, end = min(first + each, num_words);
    uint32_t mine = 0, total;
#pragma unroll 1
    for (int w = first; w < end; ++w) mine += __popc(words[w]);
    uint32_t at = block_exclusive(mine, total);
#pragma unroll 1
    for (int w = first; w < end; ++w) {
      before[w] = at;
      at += __popc(words[w]);
    }
    return total;
  }

  // Rows of the frontier when `hop` is counted and assigned, the vertices found at it among them.
  __device__ int64_t known_rows(int hop) const {
    return hop == 0 ? this->num_seeds() : this->header().frontiers[hop];
  }

  __device__ void count(int hop, int64_t rows) const { this->count_rows(hop, rows); }
  __device__ bool assign(int hop, int64_t rows, int64_t& edges) const {
    return this->assign_rows(hop, rows, edges);
  }

  // The end of a mini-batch: places in the table to local ids, and an empty table.
  __device__ void finish() const {
    this->relabel(PlaceLookup{*this});
    this->empty(this->header().frontiers[args.hops]);
  }

 private:
  // From a place in the table to the local id of the vertex there.
  struct PlaceLookup {
    static constexpr int kLoads = 2;
    using Found = N;
    const HashedPhases& phases;

    __device__ N find(N place) const { return phases.local()[place]; }
    __device__ N id(N found, N /*place*/) const { return found; }
  };
};

}  // namespace loader
