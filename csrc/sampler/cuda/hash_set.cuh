// The vertices of a mini-batch as a hash set with open addressing, whose size is that of the mini-batch.
//
// What it is for: on a large graph a mini-batch touches a small part of the bitmaps, yet every pass looks at
// all of them, every mark is an access to memory far beyond the caches, and the local ids take an array as
// long as the graph: 1.95 GB a mini-batch in flight at 4 * 10^8 vertices and two hops. A table of twice the
// mini-batch's vertices (2 MB for 10^5 of them) lies in L2 whatever the graph.
//
// Why not a bitmap with a summary above it, whose passes skip what is empty: it saves the passes, but not the
// memory, nor the two to four accesses to distant memory for each vertex (marks, the array of local ids),
// which a table in L2 does without.
//
// What a table does not give is the canonical order, ascending ids within a hop. Ids are therefore cut into
// kRanges ranges: whoever finds a vertex counts it in its range, a prefix sum over the ranges says where each
// begins, the vertices move there, and those of one range are compared with each other. This is a radix sort
// of one pass whose buckets are small: as ids are distinct, a range of a graph of n vertices holds at most
// n / kRanges of them, so no distribution of ids is out of bounds; ranges that are full are ordered by a
// bitmap in shared memory (hash_set_phases.cuh). That takes two barriers a hop, where a sort by digits of 8
// bits takes two or three a digit.
#pragma once

#include "sampler/cuda/batch_memory.cuh"
#include "sampler/cuda/mixed_bits.cuh"

namespace loader {

template <typename Args>
struct HashSet : Space<Args> {
  using P = typename Args::Edge;
  using N = typename Args::Vertex;
  using Space<Args>::Space;
  using Space<Args>::args;
  using Space<Args>::lane;
  using Space<Args>::slot;
  using Space<Args>::thread;
  using Space<Args>::threads;
  using Key = typename HashArgs<N>::Key;

  // With tables at most half full a search of this many steps does not happen (linear probing, e^-99 a key):
  // the table is too full.
  static constexpr int kMaxSteps = 512;

  __device__ Key* keys() const { return args.hash.keys + slot * args.hash.size; }
  __device__ N* found() const { return args.hash.found + slot * args.hash.capacity; }
  __device__ uint32_t* places() const { return args.hash.places + slot * args.hash.capacity; }
  __device__ uint32_t* offsets() const { return args.hash.offsets + slot * args.hash.capacity; }
  __device__ N* grouped() const { return args.hash.grouped + slot * args.hash.capacity; }
  __device__ uint32_t* grouped_place() const { return args.hash.grouped_place + slot * args.hash.capacity; }
  __device__ uint32_t* counts() const { return args.hash.counts + slot * int64_t{kRanges}; }
  __device__ uint32_t* begins() const { return args.hash.begins + slot * range_begins(); }

  __device__ static Key key_of(N v) { return static_cast<Key>(v) + 1; }

  // Where the search for a vertex begins.
  __device__ uint32_t home(N v) const {
    return static_cast<uint32_t>(mixed_bits(static_cast<Key>(v)) & static_cast<Key>(args.hash.size - 1));
  }

  // Puts the first `count` of `u` into the table; `at` receives their places. Bit i of the result: u[i] was
  // not there before. All accesses of a step are under way before the first is looked at.
  template <int K>
  __device__ uint32_t insert(const N (&u)[K], uint32_t count, uint32_t (&at)[K]) const {
    Key* const table = keys();
    const auto mask = static_cast<uint32_t>(args.hash.size - 1);
    Key there[K];
    uint32_t left = count >= 32 ? kFullMask : (1u << count) - 1, fresh = 0;
#pragma unroll
    for (int i = 0; i < K; ++i) {
      at[i] = left >> i & 1 ? home(u[i]) : 0;
      there[i] = left >> i & 1 ? __ldcg(table + at[i]) : 0;
    }
    for (int step = 1; left; ++step) {
#pragma unroll
      for (int i = 0; i < K; ++i)
        if ((left >> i & 1) && there[i] == 0) there[i] = atomicCAS(table + at[i], Key{0}, key_of(u[i]));
#pragma unroll
      for (int i = 0; i < K; ++i) {
        if (!(left >> i & 1)) continue;
        if (there[i] == 0) fresh |= 1u << i;
        if (there[i] == 0 || there[i] == key_of(u[i]))
          left &= ~(1u << i);
        else
          at[i] = (at[i] + 1) & mask;
      }
      if (!left) break;
#pragma unroll
      for (int i = 0; i < K; ++i)
        if (left >> i & 1) there[i] = __ldcg(table + at[i]);
      if (step % 16 == 0 && (step >= kMaxSteps || size() > args.hash.capacity)) {
        give_up();
        break;
      }
    }
    return fresh;
  }

  template <int K>
  __device__ void note(int /*hop*/, N (&u)[K], uint32_t count) const {
    uint32_t at[K];
    const uint32_t fresh = insert(u, count, at);
    append(u, at, fresh);
#pragma unroll
    for (int i = 0; i < K; ++i) u[i] = static_cast<N>(at[i]);
  }

  __device__ N note_one(int hop, N u, bool valid) const {
    N one[1] = {u};
    note(hop, one, valid);
    return one[0];
  }

  // Lists the new vertices, and counts them in their ranges.
  template <int K>
  __device__ void append(const N (&u)[K], const uint32_t (&at)[K], uint32_t fresh) const {
    uint32_t total;
    const uint32_t before = warp_exclusive(__popc(fresh), total);
    if (total == 0) return;
    unsigned long long begin = 0;
    if (lane == 0) begin = atomicAdd(&this->state().found.value, static_cast<unsigned long long>(total));
    int64_t to = this->num_seeds() + __shfl_sync(kFullMask, begin, 0) + before;
    uint32_t offset[K];
#pragma unroll
    for (int i = 0; i < K; ++i)
      if (fresh >> i & 1) offset[i] = atomicAdd(&counts()[u[i] >> args.hash.shift], 1u);
#pragma unroll
    for (int i = 0; i < K; ++i)
      if (fresh >> i & 1) {
        if (to < args.hash.capacity) {
          found()[to] = u[i];
          places()[to] = at[i];
          offsets()[to] = offset[i];
        }
        ++to;
      }
  }

  // The table is too full: a size beyond what fits says so.
  __device__ void give_up() const {
    if (size() <= args.hash.capacity)
      atomicAdd(&this->state().found.value, static_cast<unsigned long long>(args.hash.capacity) + 1);
  }

  // Vertices found so far, the seeds among them; more than `capacity` where they do not fit, which `group`
  // sees.
  __device__ int64_t size() const {
    const auto found = *reinterpret_cast<volatile unsigned long long*>(&this->state().found.value);
    return this->num_seeds() + static_cast<int64_t>(found);
  }

  // Empties the set of the first `vertices` that were found. All threads of the group.
  __device__ void empty(int64_t vertices) const {
    for (int64_t i = thread(); i < vertices; i += threads()) keys()[places()[i]] = 0;
    if (thread() == 0) this->state().found.value = this->state().tail.value = 0;
  }

  // After a failure: the same, whatever is in it.
  __device__ void clean() const {
#pragma unroll 1
    for (int64_t i = thread(); i < args.hash.size; i += threads()) keys()[i] = 0;
#pragma unroll 1
    for (int64_t i = thread(); i < kRanges; i += threads()) counts()[i] = 0;
    if (thread() == 0) this->state().found.value = 0;
    this->clean_pieces();
  }
};

}  // namespace loader
