// From what was reached to canonical blocks, after all hops were sampled:
//
//   count   of each warp's share of the sets: new vertices of each hop, and their edges in each block
//   assign  prefix sums over those counts: local ids, ascending with the vertices of a hop, and all indptr
//   write   the picks, in local ids, to the rows that are theirs now
//
// with a barrier of the whole group of blocks after count and assign.
#pragma once

#include "sampler/cuda/batch_memory.cuh"

namespace loader {

// The values that are counted: `hops` numbers of new vertices, then the edges that the vertices found at hop
// h have in block j, for 0 <= h < j <= hops; kMaxValues at most.
__device__ __forceinline__ int fresh_value(int hop) { return hop - 1; }
__device__ __forceinline__ int edge_value(int hops, int h, int j) { return hops + j * (j - 1) / 2 + h; }

// 32 bits hold the edges of a warp's share: fanouts are at most 32.
template <typename Args>
struct Assembly : Space<Args> {
  using P = typename Args::Edge;
  using N = typename Args::Vertex;
  using Space<Args>::Space;
  using Space<Args>::args;
  using Space<Args>::block;
  using Space<Args>::blocks;
  using Space<Args>::lane;
  using Rows = typename Space<Args>::Rows;

  __device__ int num_values() const { return args.hops + args.hops * (args.hops + 1) / 2; }
  __device__ unsigned long long* block_totals(int value) const {
    return reinterpret_cast<unsigned long long*>(args.totals + this->slot * workspace_totals()) +
           value * kMaxBlocks;
  }
  // The same of the warps of this block that come before, [kMaxValues] a warp.
  __device__ unsigned long long* warp_before(int64_t warp) const {
    return block_totals(kMaxValues) + warp * kMaxValues;
  }

  // Calls `f` with the place of every 32 words of this warp's share in which a vertex was reached, and each
  // lane's word of the last hop's set, which holds those of all others. On a large graph most are empty: they
  // are looked at several at a time.
  template <typename F>
  __device__ void for_each_chunk(const F& f) const {
    constexpr int kAhead = 8;
    const Share tiles = share(this->num_tiles(), this->warps(), this->warp());
    const uint32_t* const reached = this->reached(args.hops);
    for (int64_t first = tiles.begin; first < tiles.end; first += kAhead * kTilesPerLoad) {
      uint32_t all[kAhead];
#pragma unroll
      for (int c = 0; c < kAhead; ++c)
        all[c] = this->load_words(reached, first + c * kTilesPerLoad, tiles.end);
#pragma unroll 1
      for (int c = 0; c < kAhead; ++c) {
        const uint32_t word = all[0];
#pragma unroll
        for (int i = 1; i < kAhead; ++i)
          all[i - 1] = all[i];  // a constant index: the array stays in registers
        if (__any_sync(kFullMask, word)) f(first + c * kTilesPerLoad, tiles.end, word);
      }
    }
  }

  // In: row_degree of the seeds, the sets of all hops.
  __device__ void count() const {
    __shared__ unsigned long long partial[kWarps][kMaxValues];
    const int own = threadIdx.x / 32;
    for (int v = lane; v < kMaxValues; v += 32) partial[own][v] = 0;
    __syncwarp();
    const auto add = [&](int value, uint32_t mine) {
      const uint32_t sum = warp_sum(mine);
      if (lane == 0) partial[own][value] += sum;
    };
    const int hops = args.hops;
    const Share groups = share((this->num_seeds() + 31) / 32, this->warps(), this->warp());
    for (int64_t group = groups.begin; group < groups.end; ++group) {
      const int64_t row = group * 32 + lane;
      const uint32_t degree = row < this->num_seeds() ? this->row_degree()[row] : 0;
#pragma unroll 1
      for (int j = 1; j <= hops; ++j) add(edge_value(hops, 0, j), this->count_of(degree, j));
    }
    for_each_chunk([&](int64_t first, int64_t end, uint32_t all) {
      uint32_t below = this->load_words(this->reached(0), first, end);
      uint32_t following = hops > 1 ? this->load_words(this->reached(1), first, end) : all;
      for (int h = 1; h <= hops; ++h) {
        const uint32_t set = following;
        if (h < hops) following = h + 1 < hops ? this->load_words(this->reached(h + 1), first, end) : all;
        const uint32_t fresh = set & ~below;
        below = set;
        if (!__any_sync(kFullMask, fresh)) continue;
        add(fresh_value(h), __popc(fresh));
        if (h == hops) break;
        this->deal_rows(first, fresh, [&](uint32_t, const Rows& dealt) {
#pragma unroll 1
          for (int j = h + 1; j <= hops; ++j) {
            uint32_t edges = 0;
#pragma unroll
            for (int k = 0; k < kDealt; ++k) edges += this->count_of(dealt.degree[k], j);
            add(edge_value(hops, h, j), edges);
          }
        });
      }
    });
    __syncthreads();
    for (int v = threadIdx.x; v < num_values(); v += kBlock) {
      unsigned long long sum = 0;
      for (int w = 0; w < kWarps; ++w) {
        warp_before(int64_t{block} * kWarps + w)[v] = sum;
        sum += partial[w][v];
      }
      block_totals(v)[block] = sum;
    }
    __syncthreads();
  }

  // Writes nodes, local ids and every indptr, and leaves the sets empty. False where the outputs are too
  // small: nothing was written then. The host learns the sizes here.
  __device__ bool assign() const {
    __shared__ unsigned long long before[kMaxValues], total[kMaxValues], begin_of[kMaxValues];
    __shared__ unsigned long long cursors[kWarps][kMaxValues];
    __shared__ int64_t frontiers[kMaxHops + 1], edges[kMaxHops];
    __shared__ bool fits;
    const int hops = args.hops, own = threadIdx.x / 32;
    for (int v = own; v < num_values(); v += kWarps) {
      unsigned long long b = 0, t = 0;
      for (int i = lane; i < blocks; i += 32) {
        const unsigned long long c = block_totals(v)[i];
        t += c;
        if (i < block) b += c;
      }
      b = warp_sum(b);
      t = warp_sum(t);
      if (lane == 0) {
        before[v] = b;
        total[v] = t;
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      bool enough = true;
      frontiers[0] = this->num_seeds();
      for (int h = 1; h <= hops; ++h) {
        begin_of[fresh_value(h)] = frontiers[h - 1];
        frontiers[h] = frontiers[h - 1] + total[fresh_value(h)];
        enough &= frontiers[h] <= args.frontier_capacity[h];
        int64_t sum = 0;
#pragma unroll 1
        for (int g = 0; g < h; ++g) {
          begin_of[edge_value(hops, g, h)] = sum;
          sum += total[edge_value(hops, g, h)];
        }
        edges[h - 1] = sum;
        enough &= sum <= args.edge_capacity[h - 1];
      }
      fits = enough && this->status() == SampleStatus::kOk;
      if (block == 0) {
        SampleHeader& header = this->header();
#pragma unroll 1
        for (int h = 0; h <= hops; ++h) header.frontiers[h] = frontiers[h];
#pragma unroll 1
        for (int h = 0; h < hops; ++h) header.edges[h] = edges[h];
        header.hops_done = hops;
        if (!fits) this->fail(SampleStatus::kOverflow, 0);
        this->publish();
      }
    }
    __syncthreads();
    if (!fits) return false;
    unsigned long long* const cursor = cursors[own];
#pragma unroll 1
    for (int v = lane; v < num_values(); v += 32)
      cursor[v] = begin_of[v] + before[v] + warp_before(this->warp())[v];
    __syncwarp();

    const Share groups = share((this->num_seeds() + 31) / 32, this->warps(), this->warp());
    for (int64_t group = groups.begin; group < groups.end; ++group) {
      const int64_t row = group * 32 + lane;
      const bool valid = row < this->num_seeds();
      if (valid) {
        const N v = this->seeds()[row];
        this->nodes()[row] = v;
        this->local()[v] = static_cast<N>(row);
      }
      const uint32_t degree = valid ? this->row_degree()[row] : 0;
#pragma unroll 1
      for (int j = 1; j <= hops; ++j) write_indptr(j, valid, row, degree, cursor[edge_value(hops, 0, j)]);
    }
    for_each_chunk([&](int64_t first, int64_t end, uint32_t) {
      uint32_t below = take_words(0, first, end), following = take_words(1, first, end);
      for (int h = 1; h <= hops; ++h) {
        const uint32_t set = following;
        if (h < hops) following = take_words(h + 1, first, end);
        const uint32_t fresh = set & ~below;
        below = set;
        if (__any_sync(kFullMask, fresh)) number_words(h, first, fresh, cursor);
      }
    });
    if (block == blocks - 1 && static_cast<int>(threadIdx.x) < hops) {
      const int j = threadIdx.x + 1;
      this->indptr(j)[frontiers[j - 1]] = static_cast<P>(edges[j - 1]);
    }
    return true;
  }

  // A word of the set of each lane, which is zero from then on.
  __device__ uint32_t take_words(int hop, int64_t first, int64_t end) const {
    const int64_t index = first * kTileWords + lane;
    if (index >= min(end * kTileWords, this->num_words())) return 0;
    uint32_t* const set = this->reached(hop);
    const uint32_t word = set[index];
    if (word) set[index] = 0;
    return word;
  }

  // indptr of block `j` for a lane's row; moves the warp's cursor on. `at`: shared memory.
  __device__ void write_indptr(int j, bool valid, int64_t row, uint32_t degree,
                               unsigned long long& at) const {
    uint32_t sum;
    const uint32_t offset = warp_exclusive(valid ? this->count_of(degree, j) : 0, sum);
    if (valid) this->indptr(j)[row] = static_cast<P>(at + offset);
    __syncwarp();
    if (lane == 0) at += sum;
    __syncwarp();
  }

  // The vertices of 32 words that were found at hop `h`.
  __device__ void number_words(int h, int64_t first, uint32_t fresh, unsigned long long* cursor) const {
    const int hops = args.hops;
    const auto begin = static_cast<int64_t>(cursor[fresh_value(h)]);
    const auto name = [&](int64_t row, int64_t v) {
      this->nodes()[row] = static_cast<N>(v);
      this->local()[v] = static_cast<N>(row);
    };
    uint32_t total;
    if (h == hops) {
      total = this->number_marked(first, fresh, [&](uint32_t number, int64_t v) { name(begin + number, v); });
    } else {
      total = this->deal_rows(first, fresh, [&](uint32_t before, const Rows& dealt) {
        const int64_t row = begin + before + lane;
#pragma unroll
        for (int k = 0; k < kDealt; ++k)
          if (dealt.valid[k]) name(row + 32 * k, dealt.v[k]);
        for (int j = h + 1; j <= hops; ++j) {
          unsigned long long& at = cursor[edge_value(hops, h, j)];
          unsigned long long sum_before = at;
          uint32_t offset[kDealt], sum[kDealt];
#pragma unroll
          for (int k = 0; k < kDealt; ++k) offset[k] = this->count_of(dealt.degree[k], j);
          warp_exclusive(offset, sum);
#pragma unroll
          for (int k = 0; k < kDealt; ++k) {
            if (dealt.valid[k]) this->indptr(j)[row + 32 * k] = static_cast<P>(sum_before + offset[k]);
            sum_before += sum[k];
          }
          __syncwarp();
          if (lane == 0) at = sum_before;
          __syncwarp();
        }
      });
    }
    __syncwarp();
    if (lane == 0) cursor[fresh_value(h)] = begin + total;
    __syncwarp();
  }

  // The picks of 32 rows, one a lane: `count` each, at most K, that lie K apart from `first` on. They go to
  // element `into` of the vertex output, their edge ids to `ids_into` of the edge output, and the following.
  template <int K>
  __device__ void write(int64_t into, int64_t ids_into, uint32_t count, int64_t first) const {
    constexpr int kEach = K < 5 ? K : 5;
    N* const vertices = static_cast<N*>(this->batch().vertices);
    const N* const from = this->picks() + first;
    for (int round = 0; round < K; round += kEach) {
      N u[kEach];
      int64_t to[kEach];
      bool used[kEach];
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        const int e = (round + r) * 32 + lane, task = e / K,
                  i = e % K;  // e >= 32 * K where 5 does not divide K
        to[r] = __shfl_sync(kFullMask, into, task & 31) + i;
        used[r] = static_cast<uint32_t>(i) < __shfl_sync(kFullMask, count, task & 31) && task < 32;
        if (used[r]) u[r] = from[e];
      }
#pragma unroll
      for (int r = 0; r < kEach; ++r)
        if (used[r]) u[r] = this->local()[u[r]];
#pragma unroll
      for (int r = 0; r < kEach; ++r)
        if (used[r]) vertices[to[r]] = u[r];
    }
    if (!args.edge_ids) return;
    for (int e = lane; e < 32 * K; e += 32) {
      const int task = e / K, i = e % K;
      const int64_t at = __shfl_sync(kFullMask, ids_into, task) + i;
      if (static_cast<uint32_t>(i) < __shfl_sync(kFullMask, count, task))
        static_cast<P*>(this->batch().edges)[at] = this->positions()[first + e];
    }
  }
};

}  // namespace loader
