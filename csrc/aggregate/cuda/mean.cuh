// The launchers of the mean; each mean_*.cu instantiates them for one type of x.
#pragma once

#include "aggregate/cuda/rows.cuh"
#include "aggregate/cuda/transpose.h"

namespace loader {

template <typename P, typename I, typename T, typename O>
cudaError_t launch_mean_forward(const DeviceBlock<P, I>& block, StridedRows<const T> x, const I* nodes,
                                int64_t dim, StridedRows<O> mean, StridedRows<O> own, int padding,
                                Activation activation, void* workspace, cudaStream_t stream) {
  auto* const words = static_cast<int64_t*>(workspace);
  const LongRows long_rows{reinterpret_cast<unsigned long long*>(words), words + 1};
  const int64_t max_long = block.num_edges / (kLongRow + 1);
  if (max_long > 0) {
    if (const cudaError_t error = cudaMemsetAsync(words, 0, sizeof(*words), stream); error != cudaSuccess)
      return error;
  }
  const MeanPass<P, I, T, O> pass{
      block, x, nodes, mean, own, padding, activation, activation.identity(), dim, block.num_dst};
  return with_vectors<T>(Alignment(dim).of(x).of(mean).of(own), [&](auto width) {
    return sum_rows<decltype(width)::value>(pass, block.num_dst, long_rows, max_long, stream);
  });
}

template <typename P, typename I, typename T>
cudaError_t launch_mean_backward(const DeviceBlock<P, I>& block, const I* sorted_sources,
                                 const int64_t* order, StridedRows<const T> grad_mean,
                                 StridedRows<const T> grad_own, StridedRows<const T> x, int64_t dim,
                                 StridedRows<T> grad_x, Activation activation, void* workspace,
                                 cudaStream_t stream) {
  DeviceBlock<P, I> edges = block;
  if (grad_mean.data == nullptr) edges.num_edges = 0;
  TransposedBlock<P, I> t;
  lay_out<P, I>(workspace, edges.num_src, edges.num_edges, &t);
  if (const cudaError_t error = launch_transpose(edges, sorted_sources, order, t, stream);
      error != cudaSuccess)
    return error;
  const GradientPass<P, I, T> pass{
      block.indptr, block.live, t.begin, t.length, t.destinations, block.num_src,         block.num_dst,
      grad_mean,    grad_own,   x,       grad_x,   activation,     activation.identity(), dim};
  const LongRows long_rows{t.counters + 1, t.long_rows};
  return with_vectors<T>(Alignment(dim).of(grad_mean).of(grad_own).of(x).of(grad_x), [&](auto width) {
    return sum_rows<decltype(width)::value>(pass, block.num_src, long_rows, edges.num_edges / (kLongRow + 1),
                                            stream);
  });
}

#define LOADER_INSTANTIATE_FORWARD(P, I, T, O)                                                              \
  template cudaError_t launch_mean_forward(const DeviceBlock<P, I>&, StridedRows<const T>, const I*,        \
                                           int64_t, StridedRows<O>, StridedRows<O>, int, Activation, void*, \
                                           cudaStream_t);
#define LOADER_INSTANTIATE_BACKWARD(P, I, T)                                                          \
  template cudaError_t launch_mean_backward(                                                          \
      const DeviceBlock<P, I>&, const I*, const int64_t*, StridedRows<const T>, StridedRows<const T>, \
      StridedRows<const T>, int64_t, StridedRows<T>, Activation, void*, cudaStream_t);
#define LOADER_FOR_INDEX_TYPES(INSTANTIATE, ...) \
  INSTANTIATE(int32_t, int32_t, __VA_ARGS__)     \
  INSTANTIATE(int64_t, int32_t, __VA_ARGS__)     \
  INSTANTIATE(int64_t, int64_t, __VA_ARGS__)

}  // namespace loader
