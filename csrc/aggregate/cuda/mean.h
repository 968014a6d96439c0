// Mean over the sampled in-neighbors on the GPU, and its gradient: raw device pointers and a stream in. No
// edge-by-feature intermediate; nothing waits for the host.
//
// Index arrays are trusted to be those of a block: looking at them would cost a wait for the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/stream.h"
#include "scaled_codes.h"

namespace loader {

// What changes from one replay of a CUDA graph to the next, in device memory: a kernel that was captured
// reads here which block it works on. Written by write_captured_blocks.
struct CapturedBlock {
  const void* indptr;   // [num_dst + 1]
  const void* indices;  // [num_edges]
  int64_t num_dst;
  int64_t num_edges;
  const void* x;  // rows of the block's sources, or of all vertices; null where the launch knows them
  int64_t x_stride;
  const void* nodes;  // [num_src] which row of x a source has; null: the sources' rows follow each other
  uint32_t key;       // of the activation
};

constexpr int kMaxCapturedBlocks = 8;

// Device memory that is copied along with captured blocks: a mini-batch's labels.
struct CapturedCopy {
  const void* from;
  void* to;
  int64_t bytes;
};

// The block as a CSC matrix, in device memory; see BlockView in aggregate/mean.h.
template <typename P, typename I>
struct DeviceBlock {
  const P* indptr;   // [num_dst + 1]
  const I* indices;  // [num_edges]
  int64_t num_dst;
  int64_t num_src;
  int64_t num_edges;
  // If not null, arrays and sizes are those found here when a kernel runs, and the sizes above are upper
  // bounds, for which output and workspace have room. Rows of the output beyond the block's own become zeros.
  const CapturedBlock* captured = nullptr;
  bool sums = false;  // rows are summed, and no mean is taken
  // If not null, [num_dst] each: row i is the list order[i] of indptr, and its mean goes to element at[i] of
  // the output.
  const int64_t* order = nullptr;
  const int64_t* at = nullptr;
};

// Rows of `dim` elements, `stride` elements apart.
template <typename T>
struct StridedRows {
  T* data;
  int64_t stride;
};

// What happens to an element of x before anything is summed: ReLU, then dropout. An element is dropped where
// 16 random bits, a function of only (key, row, column), are below `threshold`; what stays is scaled.
struct Activation {
  bool relu;
  uint32_t threshold;  // of 65536; 0 drops nothing
  uint32_t key;
  double scale;

  bool identity() const { return !relu && threshold == 0; }
};

// Rows longer than this are summed by a thread block for each slice of their columns. A group of lanes that
// takes rows in turns (see sum_rows.cuh) may be given few of them: one of 256 picks would then take longer
// than all others.
constexpr int64_t kLongRow = 256, kLongRowInTurns = 64;

struct CapturedBlocks {
  CapturedBlock of[kMaxCapturedBlocks];
};

// The rows that are too long for one group of lanes: count first, then the rows.
struct LongRows {
  unsigned long long* count;
  int64_t* rows;
};

// What MeanPass of mean_passes.cuh works on.
template <typename P, typename I, typename T, typename O>
struct MeanArgs {
  DeviceBlock<P, I> block;
  StridedRows<const T> x;
  const I* nodes;
  StridedRows<O> mean, own;
  int padding;
  Activation f;
  bool identity;
  int64_t dim;
  int64_t rows;  // of the output: those beyond the destinations become zeros
};

// The same of rows that are codes.
template <typename P, typename I, typename T, typename O>
struct CodedMeanArgs : MeanArgs<P, I, T, O> {
  Scales scales;
};

template <typename P, typename I, typename T, typename O>
using MeanArgsOf = std::conditional_t<kIsCode<T>, CodedMeanArgs<P, I, T, O>, MeanArgs<P, I, T, O>>;

// What GradientPass of mean_passes.cuh works on.
template <typename P, typename I, typename T>
struct GradientArgs {
  const P* indptr;  // of the block: how many sources a destination has
  const CapturedBlock* captured;
  const P* begin;   // [num_src]
  const P* length;  // [num_src]
  const I* destinations;
  int64_t num_src, num_dst;
  StridedRows<const T> grad_mean, grad_own, x;
  StridedRows<T> grad_x;
  Activation f;
  bool identity;
  int64_t dim;
  bool sums;  // of the block
};

// Of the kernels of sum_rows.cuh: threads of a block, lanes of a slice of a long row, and vectors of N
// elements that a lane has of each row: 8 elements, 4 if they come one by one.
constexpr int kShortThreads = 256, kLongThreads = 512, kSliceLanes = 8;
template <int N>
constexpr int kVectors = N == 1 ? 4 : 8 / N;
// Thread blocks of sum_short_rows that a multiprocessor shall have room for.
constexpr int kMeanBlocks = 2, kGradientBlocks = 3;
// The same of sum_plain_rows: codes need fewer registers. The rows of a warp and the columns of a lane there.
template <typename T>
constexpr int kPlainBlocks = kIsCode<T> ? 4 : 3;
constexpr int kPlainRows = 32, kPlainColumns = 4;

// All launches are on a stream of `device`, whose context is the current one, and throw std::runtime_error if
// a kernel cannot be compiled or a launch is refused.

// Writes `count` (at most kMaxCapturedBlocks) captured blocks to device memory and does the copy, by one
// launch, in the order of the stream.
void write_captured_blocks(const CapturedBlock* blocks, int count, CapturedBlock* to,
                           const CapturedCopy& copy, int device, gpu::Stream stream);

// Bytes of workspace, uninitialised, aligned to 16.
int64_t mean_forward_workspace(int64_t num_edges);
int64_t mean_backward_workspace(int64_t num_src, int64_t num_edges);

// mean[i] = mean, or sum, of f(x[indices[e]]) over row i, zero for an empty row; own[i] = f(x[i]) unless
// own.data is null; after mean[i] follow a one and `padding` - 1 zeros, unless `padding` is 0. f is
// `activation`. x: [num_src, dim]; mean, own: [num_dst, dim]. With `nodes` [num_src], row nodes[s] of x is
// that of source s: nothing has to be gathered first. Dropout then goes by that row. Rows of codes have
// `scales`, and each element is decoded before it is added: so the result has the bits of that of the decoded
// rows.
template <typename P, typename I, typename T, typename O>
void launch_mean_forward(const DeviceBlock<P, I>& block, StridedRows<const T> x, const I* nodes, int64_t dim,
                         StridedRows<O> mean, StridedRows<O> own, int padding, Activation activation,
                         void* workspace, int device, gpu::Stream stream, Scales scales = {});

// grad_x[s] = f'(x[s]) * (grad_own[s] + sum of grad_mean[i] / deg(i), or of sums grad_mean[i], over the edges
// s -> i); either gradient
// may be null, grad_own counts for s < num_dst, x may be null where f is the identity. The block is brought
// into the order of its sources first; within a source the order of the sum is a matter of chance, unless
// `sorted_sources` [num_edges] and `order` [num_edges] are given: the sorted indices of the block and the
// edges they belong to, from a stable sort.
template <typename P, typename I, typename T>
void launch_mean_backward(const DeviceBlock<P, I>& block, const I* sorted_sources, const int64_t* order,
                          StridedRows<const T> grad_mean, StridedRows<const T> grad_own,
                          StridedRows<const T> x, int64_t dim, StridedRows<T> grad_x, Activation activation,
                          void* workspace, int device, gpu::Stream stream);

}  // namespace loader
