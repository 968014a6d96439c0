// What a row of a hop does: picks, reads the neighbors, marks them in the set of the hop, and finds
// out which of them were not there yet.
#pragma once

#include "sampler/cuda/batch_memory.cuh"
#include "sampler/cuda/device_pick.cuh"

namespace loader {

// The picks of one row.
template <int K, typename N>
struct Picked {
  N u[K];          // global ids, in list order
  uint32_t count;  // of them
  uint32_t fresh;  // bit i: u[i] was not within `hop` hops before
};

template <typename Args>
struct Expansion : Space<Args> {
  using P = typename Args::Edge;
  using N = typename Args::Vertex;
  using Space<Args>::Space;
  using Space<Args>::args;
  using Space<Args>::lane;

  // Marks a vertex that is new at `hop` in the sets of the hops beyond: it will be sampled there, too.
  __device__ void mark_beyond(N u, int hop) const {
#pragma unroll 1
    for (int h = hop + 1; h <= args.hops; ++h) atomicOr(&this->reached(h)[u / 32], 1u << u % 32);
  }

  // The same for those of the picks that are new, hop after hop. On an H200 (15, 10, 5) x 1,024 takes 7 %
  // less time than with an unrolled loop for each pick, and a fifth less than with one that is not.
  template <int K>
  __device__ void mark_beyond(const Picked<K, N>& picked, int hop) const {
#pragma unroll 1
    for (int h = hop + 1; h <= args.hops; ++h) {
      uint32_t* const set = this->reached(h);
#pragma unroll
      for (int i = 0; i < K; ++i)
        if (picked.fresh >> i & 1) atomicOr(set + picked.u[i] / 32, 1u << picked.u[i] % 32);
    }
  }

  // One row a lane, fanout at most K; lanes without one have degree 0. Their places in the graph's
  // indices go to `positions` if edge ids are wanted. Marks are made only in the set of `hop`.
  template <int K>
  __device__ void expand(int64_t v, P begin, uint32_t degree, int hop, bool last, P* positions,
                         Picked<K, N>& picked) const {
    const auto fanout = static_cast<uint32_t>(args.fanouts[hop - 1]);
    uint32_t t[K];
    const Draws draws = this->draws({v}, hop);
    const uint32_t count = pick_row<K>(args.choice, this->lists(), begin, degree, draws, fanout, t);
    if (args.edge_ids) {
#pragma unroll
      for (int i = 0; i < K; ++i)
        if (i < static_cast<int>(count)) positions[i] = begin + static_cast<P>(t[i]);
    }
    N(&u)[K] = picked.u;
#pragma unroll
    for (int i = 0; i < K; ++i)
      if (i < static_cast<int>(count)) u[i] = this->lists().read(begin, t[i]);
    uint32_t* const set = this->reached(hop);
    uint32_t known[K];
#pragma unroll
    for (int i = 0; i < K; ++i) known[i] = i < static_cast<int>(count) ? __ldcg(set + u[i] / 32) : kFullMask;
    // A set only grows, so an old value can be wrong in one direction only: the atomic operation decides.
    picked.count = count;
    picked.fresh = 0;
    if (last) {
#pragma unroll
      for (int i = 0; i < K; ++i) {
        const uint32_t bit = i < static_cast<int>(count) ? 1u << u[i] % 32 : 0;
        if ((known[i] & bit) != bit) atomicOr(set + u[i] / 32, bit);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < K; ++i) {
      const uint32_t bit = i < static_cast<int>(count) ? 1u << u[i] % 32 : 0;
      if ((known[i] & bit) != bit) known[i] = atomicOr(set + u[i] / 32, bit);
    }
#pragma unroll
    for (int i = 0; i < K; ++i)
      if (i < static_cast<int>(count) && !(known[i] >> u[i] % 32 & 1)) picked.fresh |= 1u << i;
  }

  // Writes the picks of a warp's 32 rows, K entries each, to `out` and the following. `stage`: 32 * K entries
  // of shared memory of this warp.
  template <int K>
  __device__ void store(const Picked<K, N>& picked, N* out, N* stage) const {
#pragma unroll
    for (int i = 0; i < K; ++i)
      if (i < static_cast<int>(picked.count)) stage[lane * K + i] = picked.u[i];
    __syncwarp();
#pragma unroll
    for (int round = 0; round < K; ++round) {
      const int e = round * 32 + lane;
      out[e] = stage[e];
    }
    __syncwarp();
  }
};

}  // namespace loader
