// A block in the order of its sources, made on the GPU.
#pragma once

#include <cuda_runtime_api.h>

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

// Lays the arrays out in `workspace` (null to learn the size alone) and returns the bytes they take.
template <typename P, typename I>
int64_t lay_out(void* workspace, int64_t num_src, int64_t num_edges, TransposedBlock<P, I>* transposed);

// Fills them. With `sorted_sources` and `order` (see launch_mean_backward) the destinations of a source are
// in the order of the edges.
template <typename P, typename I>
cudaError_t launch_transpose(const DeviceBlock<P, I>& block, const I* sorted_sources, const int64_t* order,
                             const TransposedBlock<P, I>& transposed, cudaStream_t stream);

}  // namespace loader
