// What each traversal on the GPU is told. For host and device.
#pragma once

#include "graph/lists.h"
#include "traverse/cuda/space.h"
#include "traverse/lengths.h"
#include "traverse/rank.h"

namespace loader {

template <typename P, typename N>
struct BfsCall {
  PlainGraph<P, N> onward, back;  // without `turns` the second is not read
  int32_t line;      // entries of a list that cost as much as one to read: 1 in GPU memory, more over the bus
  const N* sources;  // [count], of the GPU
  int64_t count;
  int32_t most, turns;
  int32_t* distance;  // [num_nodes]
  TraverseSpace<P, N> space;
};

template <typename P, typename N, typename W>
struct SsspCall {
  PlainGraph<P, N> onward;
  const W* weights;  // [num_edges]
  int32_t line;
  const N* sources;
  int64_t count;
  W delta, most_delta;               // how long the near pile is at first; not doubled from `most_delta` on
  W least_weight;                    // no weight is less
  typename Length<W>::Bits* length;  // [num_nodes]
  TraverseSpace<P, N> space;
};

template <typename P, typename N>
struct ComponentsCall {
  PlainGraph<P, N> graph;
  int32_t line;
  int32_t symmetric;
  N* label;  // [num_nodes]
  TraverseSpace<P, N> space;
};

template <typename P, typename N>
struct RankCall {
  PlainGraph<P, N> back;
  int32_t line;
  RankLaw law;
  double* ranks;              // [num_nodes]
  TraverseSpace<P, N> space;  // with numbers
};

}  // namespace loader
