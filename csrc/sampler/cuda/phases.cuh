// The sampling of one hop in three phases, with a barrier of the whole grid after each:
//
//   pick    a thread a row: picks, reads the neighbours, writes their global ids, marks the new ones in a
//   bitmap count   new vertices, and edges of the next hop, of each warp's share of the bitmap and of the old
//   rows assign  prefix sums over those counts: local ids in ascending order of vertex, the next hop's indptr
//
// and `relabel` at the end. The rows of old vertices come first, so everything is a prefix sum in warp order.
// Schedules differ in what a barrier is: the end of a kernel, or a barrier in a cooperative launch.
#pragma once

#include "sampler/cuda/device_pick.cuh"
#include "sampler/cuda/sampler.h"

namespace loader {

constexpr int kBlock = 512;  // threads
constexpr int kWarps = kBlock / 32;
constexpr int kMaxBlocks = 4096;
constexpr int kTileWords = 8;  // words of a bitmap that a warp handles together
constexpr int kTilesPerLoad = 32 / kTileWords;
constexpr uint32_t kTileMask = (1u << kTileWords) - 1;
constexpr uint32_t kFullMask = 0xFFFFFFFFu;

struct Counts {
  int64_t old_edges, fresh, fresh_edges;

  __device__ Counts& operator+=(const Counts& other) {
    old_edges += other.old_edges;
    fresh += other.fresh;
    fresh_edges += other.fresh_edges;
    return *this;
  }
};

__device__ __forceinline__ int64_t warp_sum(int64_t x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullMask, x, offset);
  return x;
}

__device__ __forceinline__ Counts warp_sum(const Counts& c) {
  return {warp_sum(c.old_edges), warp_sum(c.fresh), warp_sum(c.fresh_edges)};
}

// Exclusive prefix over the lanes; `total` receives the sum.
__device__ __forceinline__ uint32_t warp_exclusive(uint32_t x, uint32_t& total) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t sum = x;
  for (uint32_t offset = 1; offset < 32; offset *= 2) {
    const uint32_t below = __shfl_up_sync(kFullMask, sum, offset);
    if (lane >= offset) sum += below;
  }
  total = __shfl_sync(kFullMask, sum, 31);
  return sum - x;
}

// The same for several values a lane at once; the scans overlap.
template <int M>
__device__ __forceinline__ void warp_exclusive(uint32_t (&x)[M], uint32_t (&total)[M]) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t sum[M];
#pragma unroll
  for (int j = 0; j < M; ++j) sum[j] = x[j];
#pragma unroll
  for (uint32_t offset = 1; offset < 32; offset *= 2) {
#pragma unroll
    for (int j = 0; j < M; ++j) {
      const uint32_t below = __shfl_up_sync(kFullMask, sum[j], offset);
      if (lane >= offset) sum[j] += below;
    }
  }
#pragma unroll
  for (int j = 0; j < M; ++j) {
    total[j] = __shfl_sync(kFullMask, sum[j], 31);
    x[j] = sum[j] - x[j];
  }
}

struct Share {
  int64_t begin, end;
};

// Part `i` of `parts` contiguous, almost equal parts of [0, n).
__device__ __forceinline__ Share share(int64_t n, int64_t parts, int64_t i) {
  const int64_t each = n / parts, rest = n % parts;
  const int64_t begin = each * i + min(i, rest);
  return {begin, begin + each + (i < rest)};
}

template <typename P, typename N>
struct Phases {
  const SampleArgs<P, N>& args;
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;  // in the order of prefix sums
  const int64_t warps = int64_t{gridDim.x} * kWarps;
  const uint32_t lane = threadIdx.x % 32;

  __device__ explicit Phases(const SampleArgs<P, N>& a) : args(a) {}

  __device__ int64_t num_words() const { return (args.num_nodes + 31) / 32; }
  __device__ int64_t num_tiles() const { return (num_words() + kTileWords - 1) / kTileWords; }
  __device__ uint32_t count_of(uint32_t degree, int hop) const {
    return static_cast<uint32_t>(pick_count(degree, args.fanouts[hop - 1], args.replace));
  }
  __device__ Counts* block_totals() const { return reinterpret_cast<Counts*>(args.totals); }
  __device__ Counts* warp_totals() const { return reinterpret_cast<Counts*>(args.totals) + kMaxBlocks; }

  // Marks the seeds and makes them the first frontier. Warps take the same rows as in `count`.
  __device__ void start() const {
    const Share groups = share((args.num_seeds + 31) / 32, warps, warp);
    for (int64_t i = groups.begin * 32 + lane; i < min(groups.end * 32, args.num_seeds); i += 32) {
      const N v = args.seeds[i];
      if (v < 0 || v >= args.num_nodes) {
        fail(SampleStatus::kSeedRange, v);
        args.row_degree[i] = 0;  // `count` still reads it
        continue;
      }
      const uint32_t bit = 1u << v % 32;
      if (atomicOr(&args.seen[v / 32], bit) & bit) fail(SampleStatus::kSeedDuplicate, v);
      args.nodes[i] = v;
      args.local[v] = static_cast<N>(i);
      set_row(i, v);
    }
  }

  __device__ void set_row(int64_t row, N v) const {
    const P begin = args.graph_indptr[v];
    args.row_begin[row] = begin;
    args.row_degree[row] = static_cast<uint32_t>(args.graph_indptr[v + 1] - begin);
  }

  __device__ void fail(SampleStatus status, int64_t detail) const {
    if (atomicCAS(reinterpret_cast<unsigned long long*>(&args.header->status),
                  static_cast<unsigned long long>(SampleStatus::kOk),
                  static_cast<unsigned long long>(status)) == 0)
      args.header->detail = detail;
  }

  // Picks of hop `hop` for the first `rows` vertices. `stage`: kWarps * stage_entries<K>() of shared memory.
  template <int K>
  __device__ void pick(int hop, int64_t rows, N* stage) const {
    const P* const indptr = args.indptr[hop - 1];
    N* const indices = args.indices[hop - 1];
    P* const edge_ids = args.edge_ids[hop - 1];
    const auto fanout = static_cast<uint32_t>(args.fanouts[hop - 1]);
    stage += threadIdx.x / 32 * 32 * K;
    // Neighbouring groups of rows go to different multiprocessors: few rows are spread over all of them.
    const int64_t first = int64_t{threadIdx.x / 32} * gridDim.x + blockIdx.x;
    for (int64_t group = first; group * 32 < rows; group += warps) {
      const int64_t row = group * 32 + lane;
      const bool valid = row < rows;
      const int64_t v = valid ? int64_t{args.nodes[row]} : 0;
      const P begin = valid ? args.row_begin[row] : 0;
      const uint32_t degree = valid ? args.row_degree[row] : 0;
      const P out = valid ? indptr[row] : 0;
      const P out_begin = __shfl_sync(kFullMask, out, 0);
      const auto out_count = static_cast<uint32_t>(indptr[min(rows, group * 32 + 32)] - out_begin);

      uint32_t t[K];
      const Draws draws{args.key, static_cast<uint64_t>(v), static_cast<uint32_t>(hop)};
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
        if (i < static_cast<int>(count)) known[i] = args.seen[u[i] / 32];
      N* const mine = stage + (out - out_begin);
#pragma unroll
      for (int i = 0; i < K; ++i) {
        if (i < static_cast<int>(count)) {
          mine[i] = u[i];
          const uint32_t bit = 1u << u[i] % 32;
          if (!(known[i] & bit)) atomicOr(&args.fresh[u[i] / 32], bit);
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
    for (int64_t row = warp; row < rows; row += warps) {
      const uint32_t degree = args.row_degree[row];
      const uint32_t count = count_of(degree, hop);
      const P begin = args.row_begin[row], out = args.indptr[hop - 1][row];
      const bool all = picks_all(degree, args.fanouts[hop - 1], args.replace);
      if (!all && count > 0)
        pick_warp({args.key, static_cast<uint64_t>(args.nodes[row]), static_cast<uint32_t>(hop)}, degree,
                  count, args.replace, stage);
      for (uint32_t i = lane; i < count; i += 32)
        take(hop, begin + static_cast<P>(all ? i : stage[i]), out + i);
      __syncwarp();
    }
  }

  // All neighbours: the edges, not the rows, are shared out, so that a hub's list is read by many warps.
  __device__ void pick_all(int hop, int64_t rows, int64_t edges) const {
    constexpr int64_t kChunk = 256;
    const P* const indptr = args.indptr[hop - 1];
    for (int64_t chunk = warp; chunk * kChunk < edges; chunk += warps) {
      const int64_t begin = chunk * kChunk, end = min(edges, begin + kChunk);
      const int64_t first = row_of(indptr, 0, rows, begin), last = row_of(indptr, first, rows, end - 1);
      for (int64_t e = begin + lane; e < end; e += 32) {
        const int64_t row = row_of(indptr, first, last + 1, e);
        take(hop, args.row_begin[row] + static_cast<P>(e - indptr[row]), static_cast<P>(e));
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
    if (!(args.seen[u / 32] & bit)) atomicOr(&args.fresh[u / 32], bit);
    args.indices[hop - 1][out] = u;
    if (args.edge_ids[hop - 1]) args.edge_ids[hop - 1][out] = position;
  }

  // Counts for `assign(hop, ...)`: hop 0 counts the seeds' rows alone. Ends with the block's total written.
  __device__ void count(int hop, int64_t rows) const {
    __shared__ Counts partial[kWarps];
    const bool next = hop < args.hops;
    Counts mine{0, 0, 0};
    if (next) {
      const Share groups = share((rows + 31) / 32, warps, warp);
      for (int64_t row = groups.begin * 32 + lane; row < min(groups.end * 32, rows); row += 32)
        mine.old_edges += count_of(args.row_degree[row], hop + 1);
    }
    if (hop > 0) {
      const Share tiles = share(num_tiles(), warps, warp);
      for (int64_t first = tiles.begin; first < tiles.end; first += kTilesPerLoad) {
        const uint32_t word = load_words(args.fresh, first, tiles.end);
        mine.fresh += __popc(word);
        if (!next) continue;
        const uint32_t filled = __ballot_sync(kFullMask, word);
        for (int t = 0; t < kTilesPerLoad; ++t) {
          if (!(filled >> t * kTileWords & kTileMask)) continue;
          P begin[kTileWords];
          uint32_t degree[kTileWords];
          load_rows(first, t, word, begin, degree);
#pragma unroll
          for (int j = 0; j < kTileWords; ++j) mine.fresh_edges += count_of(degree[j], hop + 1);
        }
      }
    }
    mine = warp_sum(mine);
    if (lane == 0) {
      partial[threadIdx.x / 32] = mine;
      warp_totals()[warp] = mine;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      Counts c = lane < kWarps ? partial[lane] : Counts{0, 0, 0};
      c = warp_sum(c);
      if (lane == 0) block_totals()[blockIdx.x] = c;
    }
    __syncthreads();
  }

  // A word of each lane: those of the tiles from `first` on, zero beyond tile `end`.
  __device__ uint32_t load_words(const uint32_t* bitmap, int64_t first, int64_t end) const {
    const int64_t index = first * kTileWords + lane;
    return index < min(end * kTileWords, num_words()) ? bitmap[index] : 0;
  }

  // Where the lists of the tile's marked vertices begin, and their lengths (0 for the others): lane's vertex
  // of word j in entry j. All loads are under way before the first is used; nothing in the kernel writes the
  // graph.
  __device__ void load_rows(int64_t first, int t, uint32_t word, P (&begin)[kTileWords],
                            uint32_t (&degree)[kTileWords]) const {
    P end[kTileWords];
#pragma unroll
    for (int j = 0; j < kTileWords; ++j) {
      const bool marked = __shfl_sync(kFullMask, word, t * kTileWords + j) >> lane & 1;
      const P* const at = args.graph_indptr + ((first + t) * kTileWords + j) * 32 + lane;
      begin[j] = marked ? __ldg(at) : 0;
      end[j] = marked ? __ldg(at + 1) : 0;
    }
#pragma unroll
    for (int j = 0; j < kTileWords; ++j) degree[j] = static_cast<uint32_t>(end[j] - begin[j]);
  }

  // Sums of all warps before this one, and of all warps. Every thread of the grid gets the same total.
  __device__ void prefix(Counts& before, Counts& total) const {
    __shared__ Counts shared_before[kWarps], shared_total[kWarps];
    Counts b{0, 0, 0}, t{0, 0, 0};
    for (int i = threadIdx.x; i < static_cast<int>(gridDim.x); i += kBlock) {
      const Counts c = block_totals()[i];
      t += c;
      if (i < static_cast<int>(blockIdx.x)) b += c;
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
    if (static_cast<int>(lane) < own) before += warp_totals()[int64_t{blockIdx.x} * kWarps + lane];
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
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      args.header->frontiers[hop] = rows;
      if (next) args.header->edges[hop] = edges;
      args.header->hops_done = hop;
      if (!fits) fail(SampleStatus::kOverflow, 0);
      // The last sizes are known: the host goes on while the blocks are written.
      if (!next || !fits) publish();
    }
    if (!fits) return false;
    P* const indptr = next ? args.indptr[hop] : nullptr;
    if (next) {
      const Share groups = share((old_rows + 31) / 32, warps, warp);
      int64_t at = before.old_edges;
      for (int64_t group = groups.begin; group < groups.end; ++group) {
        const int64_t row = group * 32 + lane;
        uint32_t sum;
        const uint32_t offset =
            warp_exclusive(row < old_rows ? count_of(args.row_degree[row], hop + 1) : 0, sum);
        if (row < old_rows) indptr[row] = static_cast<P>(at + offset);
        at += sum;
      }
    }
    if (hop > 0) {
      const Share tiles = share(num_tiles(), warps, warp);
      int64_t rank = old_rows + before.fresh, at = total.old_edges + before.fresh_edges;
      uint32_t following = load_words(args.fresh, tiles.begin, tiles.end);
      for (int64_t first = tiles.begin; first < tiles.end; first += kTilesPerLoad) {
        const uint32_t word = following;
        following = load_words(args.fresh, first + kTilesPerLoad, tiles.end);
        const int64_t index = first * kTileWords + lane;
        if (next && word) {
          args.seen[index] |= word;
          args.fresh[index] = 0;
        } else if (!next && index < min(tiles.end * kTileWords, num_words())) {  // leave the bitmaps clean
          if (args.seen[index]) args.seen[index] = 0;
          if (word) args.fresh[index] = 0;
        }
        const uint32_t filled = __ballot_sync(kFullMask, word);
        for (int t = 0; t < kTilesPerLoad; ++t) {
          if (!(filled >> t * kTileWords & kTileMask)) continue;
          P begin[kTileWords];
          uint32_t degree[kTileWords], offset[kTileWords], sum[kTileWords];
          if (next) {
            load_rows(first, t, word, begin, degree);
#pragma unroll
            for (int j = 0; j < kTileWords; ++j) offset[j] = count_of(degree[j], hop + 1);
            warp_exclusive(offset, sum);
          }
#pragma unroll
          for (int j = 0; j < kTileWords; ++j) {
            const uint32_t bits = __shfl_sync(kFullMask, word, t * kTileWords + j);
            if (bits >> lane & 1) {
              const int64_t v = ((first + t) * kTileWords + j) * 32 + lane;
              const int64_t row = rank + __popc(bits & ((1u << lane) - 1));
              args.nodes[row] = static_cast<N>(v);
              args.local[v] = static_cast<N>(row);
              if (next) {
                args.row_begin[row] = begin[j];
                args.row_degree[row] = degree[j];
                indptr[row] = static_cast<P>(at + offset[j]);
              }
            }
            rank += __popc(bits);
            if (next) at += sum[j];
          }
        }
      }
    }
    if (next && warp == warps - 1 && lane == 0) indptr[rows] = static_cast<P>(edges);
    return true;
  }

  // After a failure: leaves the bitmaps as the next call wants them.
  __device__ void clean() const {
    for (int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x; i < num_words();
         i += int64_t{gridDim.x} * kBlock)
      args.seen[i] = args.fresh[i] = 0;
  }

  // Global to local ids, for the `edges` edges of `hop`. Sixteen bytes a load; `indices` is aligned to them.
  __device__ void relabel(int hop, int64_t edges) const {
    constexpr int kEach = 16 / sizeof(N);
    constexpr int kLoads = 2;
    struct alignas(16) Pack {
      N u[kEach];
    };
    N* const indices = args.indices[hop - 1];
    auto* const packs = reinterpret_cast<Pack*>(indices);
    const int64_t num_packs = edges / kEach;
    const int64_t threads = int64_t{gridDim.x} * kBlock;
    const int64_t thread = int64_t{blockIdx.x} * kBlock + threadIdx.x;
    for (int64_t i = thread; i < num_packs; i += kLoads * threads) {
      Pack pack[kLoads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        if (i + l * threads < num_packs) pack[l] = packs[i + l * threads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        if (i + l * threads < num_packs)
#pragma unroll
          for (int k = 0; k < kEach; ++k) pack[l].u[k] = args.local[pack[l].u[k]];
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        if (i + l * threads < num_packs) packs[i + l * threads] = pack[l];
    }
    const int64_t rest = num_packs * kEach + thread;
    if (rest < edges) indices[rest] = args.local[indices[rest]];
  }

  // Hands the sizes to the host, which waits for `sequence`. One thread.
  __device__ void publish() const {
    SampleHeader* const host = args.host_header;
    for (int h = 0; h <= args.hops; ++h) host->frontiers[h] = args.header->frontiers[h];
    for (int h = 0; h < args.hops; ++h) host->edges[h] = args.header->edges[h];
    host->status = args.header->status;
    host->detail = args.header->detail;
    host->hops_done = args.header->hops_done;
    __threadfence_system();
    *reinterpret_cast<volatile uint64_t*>(&host->sequence) = args.sequence;
  }

  // Ends a call, after all others have seen its status: bad seeds are told now, and the next call finds a
  // clean state. One thread.
  __device__ void finish() const {
    const SampleStatus status = args.header->status;
    if (status == SampleStatus::kSeedRange || status == SampleStatus::kSeedDuplicate) publish();
    args.header->status = SampleStatus::kOk;
  }
};

}  // namespace loader
