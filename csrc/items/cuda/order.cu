#include "items/cuda/order.h"

namespace loader {
namespace {

constexpr int kThreads = 256;

__global__ void items_at_kernel(Permutation order, Runs runs, int64_t* out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < runs.count) out[i] = order(runs.at(i));
}

}  // namespace

cudaError_t launch_items_at(const Permutation& order, const Runs& runs, int64_t* out, cudaStream_t stream) {
  if (runs.count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((runs.count + kThreads - 1) / kThreads);
  items_at_kernel<<<blocks, kThreads, 0, stream>>>(order, runs, out);
  return cudaGetLastError();
}

}  // namespace loader
