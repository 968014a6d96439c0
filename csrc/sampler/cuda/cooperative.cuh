// One launch, a barrier of the mini-batch's blocks between hops. The vertices of a hop are appended to a list
// in order of arrival, and sampled from there; only when all hops are done the blocks are put in order.
#pragma once

#include "sampler/cuda/assemble.cuh"
#include "sampler/cuda/expand.cuh"

namespace loader {

template <typename Args>
struct Cooperative : Expansion<Args> {
  using P = typename Args::Edge;
  using N = typename Args::Vertex;
  using Expansion<Args>::Expansion;
  using Space<Args>::args;
  using Space<Args>::block;
  using Space<Args>::blocks;
  using Space<Args>::lane;

  // Samples `hop` for the first `rows` vertices of the list; of those from `known` on, rows are looked up.
  // Their picks go to `first` and following. Hop 1 takes the seeds, and marks them.
  template <int K>
  __device__ void sample_hop(int hop, int64_t rows, int64_t known, int64_t first, N* stage) const {
    stage += threadIdx.x / 32 * 32 * K;
    const bool last = hop == args.hops;
    // Neighboring groups of rows go to different multiprocessors: few rows are spread over all of them.
    const int64_t group = int64_t{threadIdx.x / 32} * blocks + block;
    Row next = load_row(hop, group * 32 + lane, rows, known);
    for (int64_t at = group * 32; at < rows; at += this->warps() * 32) {
      const Row row = next;
      next = load_row(hop, at + this->warps() * 32 + lane, rows, known);
      Picked<K, N> picked;
      P* const positions = args.edge_ids ? this->positions() + first + (at + lane) * K : nullptr;
      this->template expand<K>(row.v, row.begin, row.degree, hop, last, positions, picked);
      if (!last) push(picked, hop, rows);
      this->store(picked, this->picks() + first + at * K, stage);
    }
  }

  struct Row {
    N v;
    P begin;
    uint32_t degree;
  };

  __device__ Row load_row(int hop, int64_t at, int64_t rows, int64_t known) const {
    Row row{0, 0, 0};
    if (at >= rows) return row;
    if (at < known) {
      row.v = this->list()[at];
      row.begin = this->row_begin()[at];
      row.degree = this->row_degree()[at];
      return row;
    }
    row.v = hop == 1 ? this->seeds()[at] : this->list()[at];
    if (hop == 1) {
      if (this->check_seed(row.v)) {
        const uint32_t bit = 1u << row.v % 32;
        if (atomicOr(&this->reached(0)[row.v / 32], bit) & bit)
          this->fail(SampleStatus::kSeedDuplicate, row.v);
        this->mark_beyond(row.v, 0);
      } else {
        row.v = 0;  // what follows is thrown away
      }
      this->list()[at] = row.v;
    }
    const ListOf<P> list = this->lists().list({row.v});
    row.begin = list.begin;
    row.degree = list.degree();
    this->row_begin()[at] = row.begin;
    this->row_degree()[at] = row.degree;
    return row;
  }

  // Appends the new vertices to the list of `rows`, and marks them in the sets of the hops beyond. A pick
  // that comes before a seed's own mark may append that seed once more; its rows are then written twice,
  // alike.
  template <int K>
  __device__ void push(const Picked<K, N>& picked, int hop, int64_t rows) const {
    uint32_t total;
    const uint32_t before = warp_exclusive(__popc(picked.fresh), total);
    if (total == 0) return;
    unsigned long long begin = 0;
    if (lane == 0)
      begin = atomicAdd(&this->state().found.of_hop[hop - 1], static_cast<unsigned long long>(total));
    int64_t at = rows + __shfl_sync(kFullMask, begin, 0) + before;
    this->mark_beyond(picked, hop);
#pragma unroll
    for (int i = 0; i < K; ++i)
      if (picked.fresh >> i & 1) {
        if (at < args.rows_capacity) this->list()[at] = picked.u[i];
        ++at;
      }
    if (at > args.rows_capacity) this->fail(SampleStatus::kOverflow, 0);
  }

  // Vertices in the list after `hop`, which began with `rows` of them.
  __device__ int64_t listed(int hop, int64_t rows) const {
    const auto appended =
        *reinterpret_cast<volatile unsigned long long*>(&this->state().found.of_hop[hop - 1]);
    return min(rows + static_cast<int64_t>(appended), args.rows_capacity);
  }
};

}  // namespace loader
