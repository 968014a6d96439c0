// How many vertices a hop found in a tree, and edges of their rows, by type; and how many the trees before it
// have together. A tree adds its counts to a total and to the count of its group of trees as it goes on, so
// after one barrier each tree finds its place by the groups before its own and the trees before it there.
#pragma once

#include "sampler/cuda/collectives.cuh"
#include "sampler/cuda/trees.h"

namespace loader {

// Of one mini-batch. A segment is a hop and a type; those of edges follow those of vertices.
struct TreeCounts {
  uint32_t *vertices, *edges;  // [segments][trees]
  uint32_t* sums;              // [2 * segments][1 + groups]: of all trees, then of each group
  int64_t trees;
  int segments, groups_capacity, group_bits;

  __device__ uint32_t* of_segment(int segment) const {
    return segment < segments ? vertices + product_of(segment, trees)
                              : edges + product_of(segment - segments, trees);
  }
  __device__ uint32_t* sums_of(int segment) const { return sums + int64_t{segment} * (1 + groups_capacity); }

  // The count of a tree, which is told once.
  __device__ void tell(int segment, int64_t tree, uint32_t count) const {
    of_segment(segment)[tree] = count;
    if (count == 0) return;
    atomicAdd(sums_of(segment), count);
    atomicAdd(sums_of(segment) + 1 + (tree >> group_bits), count);
  }

  // All that follows is after a barrier of the blocks.

  __device__ uint32_t total(int segment) const { return sums_of(segment)[0]; }

  // Calls f(segment, how many the trees before `tree` have) for `count` segments, by the first lane of the
  // warps of a block, which share them out.
  template <typename F>
  __device__ void each_before(int first_segment, int count, int64_t tree, const F& f) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
#pragma unroll 1
    for (int i = warp; i < count; i += warps) {
      const uint32_t sum = warp_sum(part_before(first_segment + i, tree));
      if (threadIdx.x % 32 == 0) f(first_segment + i, sum);
    }
  }

 private:
  // A lane's part of it. There is rarely more than a group, and a tree, for a lane.
  __device__ uint32_t part_before(int segment, int64_t tree) const {
    const int64_t group = tree >> group_bits, lane = threadIdx.x % 32, first = group << group_bits;
    const uint32_t *const of_groups = sums_of(segment) + 1, *const counts = of_segment(segment);
    uint32_t sum = lane < group ? of_groups[lane] : 0;
    sum += first + lane < tree ? counts[first + lane] : 0;
#pragma unroll 1
    for (int64_t g = lane + 32; g < group; g += 32) sum += of_groups[g];
#pragma unroll 1
    for (int64_t i = first + lane + 32; i < tree; i += 32) sum += counts[i];
    return sum;
  }
};

}  // namespace loader
