// Mean over the sampled in-neighbors of a block, and its gradient. No edge-by-feature intermediate.
#pragma once

#include <cstdint>

#include "parallel.h"

namespace loader {

// The block as a CSC matrix: row i < num_dst holds the local source ids indices[indptr[i] .. indptr[i + 1]).
template <typename P, typename I>
struct BlockView {
  const P* indptr;   // [num_dst + 1]
  const I* indices;  // [num_edges], in [0, num_src)
  int64_t num_dst;
  int64_t num_src;
  int64_t num_edges;
};

// What is wrong with a block; `ok` when nothing is.
enum class BlockError { ok, bad_start, not_monotone, bad_end, bad_index };

// `where` becomes the first offending row (not_monotone) or edge (bad_index).
template <typename P, typename I>
BlockError check_block(const BlockView<P, I>& block, ThreadPool& pool, int64_t* where);

// out[i] = mean of x[indices[e]] over row i, zero for an empty row. x: [num_src, dim], out: [num_dst, dim].
template <typename P, typename I, typename T>
void mean_forward(const BlockView<P, I>& block, const T* x, int64_t dim, T* out, ThreadPool& pool);

// grad_x[s] = sum of grad_out[i] / deg(i) over the edges s -> i, in the order of the edges: the same bits for
// any number of threads. grad_out: [num_dst, dim], grad_x: [num_src, dim].
template <typename P, typename I, typename T>
void mean_backward(const BlockView<P, I>& block, const T* grad_out, int64_t dim, T* grad_x, ThreadPool& pool);

}  // namespace loader
