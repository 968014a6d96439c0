// The kernels of hops.h. A thread has one element of each array that is written.
#pragma once

#include <cstdint>

#include "graph/search.h"
#include "layout/cuda/hops.h"

namespace loader {

__device__ __forceinline__ int64_t layout_thread() {
  return int64_t{blockIdx.x} * kLayoutThreads + threadIdx.x;
}

__global__ void __launch_bounds__(kLayoutThreads) move_hops(MovedHops args) {
  const int64_t i = layout_thread(), total = args.of_types[args.types];
  if (i < args.nodes) {
    const int64_t segment = args.segment[i], place = args.place[i], type = args.type[i];
    const bool there = place < args.size[segment];
    const int64_t node = there ? args.begin[segment] + place : 0;
    int64_t distinct = 0;
    if (there)
      distinct = args.distinct == nullptr ? args.of_type[segment] + place
                                          : args.distinct[node] - args.of_types[type];
    args.to_distinct[i] = distinct + args.first[type];
    if (args.tree != nullptr) args.to_tree[i] = there ? args.tree[node] : 0;
  }
  if (i < args.rows) {
    // Rows beyond their segment's begin where its last one ends.
    const int64_t segment = args.segment_of_row[i];
    const int64_t place = min(args.place_of_row[i], args.size[segment] * args.slots[segment]);
    args.to_indptr[i] = static_cast<int32_t>(args.indptr[args.row[segment] + place] + args.edges[segment]);
  } else if (i == args.rows) {
    args.to_indptr[i] = static_cast<int32_t>(total);
  }
  if (i < args.entries) {
    // Each source's place moves as its segment does.
    const int64_t source = args.indices[i];
    const int64_t segment =
        min(upper_bound(args.end, ListOf<int64_t>{0, args.segments}, source), args.segments - 1);
    args.to_indices[i] = i < total ? static_cast<int32_t>(source + args.shift[segment]) : 0;
  }
}

__global__ void __launch_bounds__(kLayoutThreads) map_entries(MappedEntries args) {
  const int64_t i = layout_thread();
  if (i <= args.nodes) {
    const int64_t begin = args.indptr[args.first_row[i]] + i;
    args.begins[i] = static_cast<int32_t>(begin);
    if (i < args.nodes)
      args.found[begin] = static_cast<int32_t>(args.row[i] * args.of_node[i] + args.of_node[args.nodes + i]);
  }
  if (i < args.entries) {
    const int64_t row = upper_bound(args.indptr + 1, ListOf<int64_t>{0, args.rows}, static_cast<int32_t>(i));
    const int64_t at = i + args.node_of_row[row] + 1;
    args.found[at] =
        static_cast<int32_t>(args.row[args.indices[i]] * args.of_row[row] + args.of_row[args.rows + 1 + row]);
  }
}

// A warp has a node.
__global__ void __launch_bounds__(kLayoutThreads) encode_times(TimesSince args) {
  const int64_t node = layout_thread() / 32;
  if (node >= args.nodes) return;
  const int64_t time = args.seed_times[args.tree[node]], row = args.row[node];
  int64_t day = time / kSecondsOfDay;
  if (day * kSecondsOfDay > time) --day;
  // Days and seconds apart, which are exact.
  const float days = static_cast<float>(day) - args.known[2 * row];
  const float seconds = static_cast<float>(time - day * kSecondsOfDay) - args.known[2 * row + 1];
  const float since = days + seconds / static_cast<float>(kSecondsOfDay);
  float* const out = args.out + node * 2 * args.half;
  for (int64_t k = threadIdx.x % 32; k < args.half; k += 32) {
    const float angle = since * args.frequency[k];
    out[k] = sinf(angle);
    out[args.half + k] = cosf(angle);
  }
}

}  // namespace loader
