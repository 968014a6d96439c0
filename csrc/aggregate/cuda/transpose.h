// A block in the order of its sources, made on the GPU.
#pragma once

#include <cstdint>

#include "aggregate/cuda/mean.h"

namespace loader {

// The destinations of source s are destinations[begin[s] .. begin[s] + length[s]); which source's come first
// is a matter of chance. Everything lies in the workspace.
template <typename P, typename I>
struct TransposedBlock {
  P* length;                     // [num_src]
  P* begin;                      // [num_src]
  P* rank;                       // [num_edges], scratch
  I* destinations;               // [num_edges]
  unsigned long long* counters;  // edges placed so far, long rows
  int64_t* long_rows;
};

constexpr int kTransposeThreads = 256;
constexpr int kSourcesPerThread = 4;
constexpr int kSourcesPerBlock = kTransposeThreads * kSourcesPerThread;

}  // namespace loader
