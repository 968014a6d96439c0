// Launches the traversals on the GPU. All arrays are the GPU's, or of pinned memory.
#pragma once

#include "gpu/stream.h"
#include "traverse/cuda/calls.h"

namespace loader {

template <typename P, typename N>
void bfs_on_gpu(const BfsCall<P, N>& call, int device, gpu::Stream stream);
template <typename P, typename N, typename W>
void sssp_on_gpu(const SsspCall<P, N, W>& call, int device, gpu::Stream stream);
template <typename P, typename N>
void components_on_gpu(const ComponentsCall<P, N>& call, int device, gpu::Stream stream);
template <typename P, typename N>
void pagerank_on_gpu(const RankCall<P, N>& call, int device, gpu::Stream stream);

}  // namespace loader
