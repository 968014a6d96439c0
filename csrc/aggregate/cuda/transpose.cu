#include <algorithm>
#include <type_traits>

#include "aggregate/cuda/transpose.h"
#include "aggregate/cuda/vectors.cuh"

namespace loader {
namespace {

constexpr int kThreads = 256;
constexpr int kSourcesPerThread = 4;
constexpr int kSourcesPerBlock = kThreads * kSourcesPerThread;

template <typename P>
using Unsigned = std::conditional_t<sizeof(P) == 8, unsigned long long, unsigned int>;

template <typename P>
__device__ __forceinline__ P fetch_add(P* p, P x) {
  return static_cast<P>(atomicAdd(reinterpret_cast<Unsigned<P>*>(p), static_cast<Unsigned<P>>(x)));
}

// Edges beyond the last row's belong to none: a padded mini-batch has some.
template <typename P, typename I>
__device__ __forceinline__ int64_t edges_of_rows(const DeviceBlock<P, I>& block) {
  return min(block.num_edges, static_cast<int64_t>(block.indptr[block.num_dst]));
}

// Counts each source's edges, and gives each edge its place among those of its source.
template <typename P, typename I>
__global__ void __launch_bounds__(kThreads) count_edges(DeviceBlock<P, I> found, P* length, P* rank) {
  const DeviceBlock<P, I> block = settled(found);
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const I source = e < block.num_edges ? block.indices[e] : I(0);  // on its way beside the number of edges
  if (e < edges_of_rows(block)) rank[e] = fetch_add(length + source, P(1));
}

__device__ __forceinline__ void list_if_long(int64_t source, int64_t length, unsigned long long* counters,
                                             int64_t* long_rows) {
  if (length > kLongRow) long_rows[atomicAdd(counters + 1, 1ULL)] = source;
}

// Gives each source a stretch of the edges. Blocks take theirs in the order in which they come: the stretches
// need no order, so no block waits for another.
template <typename P>
__global__ void __launch_bounds__(kThreads) place_sources(const P* length, int64_t num_src, P* begin,
                                                          unsigned long long* counters, int64_t* long_rows) {
  __shared__ int64_t warp_total[kThreads / 32];
  __shared__ int64_t block_begin;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first = int64_t{blockIdx.x} * kSourcesPerBlock + int64_t{threadIdx.x} * kSourcesPerThread;
  int64_t n[kSourcesPerThread], mine = 0;
#pragma unroll
  for (int k = 0; k < kSourcesPerThread; ++k) {
    n[k] = first + k < num_src ? length[first + k] : 0;
    mine += n[k];
    list_if_long(first + k, n[k], counters, long_rows);
  }
  int64_t up_to = mine;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int64_t below = __shfl_up_sync(0xFFFFFFFFu, up_to, offset);
    if (lane >= offset) up_to += below;
  }
  if (lane == 31) warp_total[warp] = up_to;
  __syncthreads();
  if (threadIdx.x == 0) {
    int64_t sum = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      const int64_t total = warp_total[w];
      warp_total[w] = sum;
      sum += total;
    }
    block_begin = static_cast<int64_t>(atomicAdd(counters, static_cast<unsigned long long>(sum)));
  }
  __syncthreads();
  int64_t at = block_begin + warp_total[warp] + up_to - mine;
#pragma unroll
  for (int k = 0; k < kSourcesPerThread; ++k) {
    if (first + k < num_src) begin[first + k] = static_cast<P>(at);
    at += n[k];
  }
}

// The row in [low, high) that holds edge e: the last one that begins at or before e.
template <typename P>
__device__ __forceinline__ int64_t row_of_edge(const P* indptr, int64_t e, int64_t low, int64_t high) {
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (static_cast<int64_t>(indptr[middle]) <= e) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// A block of threads has neighbouring edges, so their rows lie between those of the first and the last one.
template <typename P, typename I>
__global__ void __launch_bounds__(kThreads) fill(DeviceBlock<P, I> found, TransposedBlock<P, I> t) {
  __shared__ int64_t bound[2];
  const DeviceBlock<P, I> block = settled(found);
  const int64_t first = int64_t{blockIdx.x} * kThreads, e = first + threadIdx.x;
  const int64_t num_edges = edges_of_rows(block);
  if (first >= num_edges) return;  // there may be fewer edges than room for them
  if (threadIdx.x < 2) {
    const int64_t edge = threadIdx.x == 0 ? first : min(first + kThreads, num_edges) - 1;
    bound[threadIdx.x] = row_of_edge(block.indptr, edge, 0, block.num_dst);
  }
  __syncthreads();
  if (e >= num_edges) return;
  const int64_t row = row_of_edge(block.indptr, e, bound[0], bound[1] + 1);
  t.destinations[t.begin[block.indices[e]] + t.rank[e]] = static_cast<I>(row);
}

// How many of `sorted` are below `source`.
template <typename I>
__device__ __forceinline__ int64_t count_below(const I* sorted, int64_t n, int64_t source) {
  int64_t low = 0;
  while (n > 0) {
    const int64_t half = n / 2;
    if (static_cast<int64_t>(sorted[low + half]) < source) {
      low += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return low;
}

template <typename P, typename I>
__global__ void __launch_bounds__(kThreads)
    place_sorted(DeviceBlock<P, I> block, const I* sorted, TransposedBlock<P, I> t) {
  const int64_t s = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (s >= block.num_src) return;
  const int64_t begin = count_below(sorted, block.num_edges, s);
  const int64_t length = count_below(sorted, block.num_edges, s + 1) - begin;
  t.begin[s] = static_cast<P>(begin);
  t.length[s] = static_cast<P>(length);
  list_if_long(s, length, t.counters, t.long_rows);
}

template <typename P, typename I>
__global__ void __launch_bounds__(kThreads)
    fill_sorted(DeviceBlock<P, I> block, const int64_t* order, TransposedBlock<P, I> t) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < block.num_edges)
    t.destinations[i] = static_cast<I>(row_of_edge(block.indptr, order[i], 0, block.num_dst));
}

// Thread blocks that copy labels: enough for the wide ones of a multilabel mini-batch.
constexpr unsigned kMostCopying = 32;

struct LiveBlocks {
  LiveBlock of[kMaxLiveBlocks];
};

// The values travel as the launch's arguments, so the host's own may change at once.
template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    write_live(LiveBlocks blocks, int count, LiveBlock* to, LiveCopy copy) {
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < count) to[threadIdx.x] = blocks.of[threadIdx.x];
  const auto* from = static_cast<const Unit*>(copy.from);
  auto* into = static_cast<Unit*>(copy.to);
  const int64_t units = copy.bytes / static_cast<int64_t>(sizeof(Unit));
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < units;
       i += int64_t{gridDim.x} * kThreads)
    into[i] = from[i];
}

unsigned blocks_for(int64_t threads, int64_t per_block = kThreads) {
  return static_cast<unsigned>((threads + per_block - 1) / per_block);
}

int64_t aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

cudaError_t write_live_blocks(const LiveBlock* blocks, int count, LiveBlock* to, const LiveCopy& copy,
                              cudaStream_t stream) {
  LiveBlocks values{};
  std::copy_n(blocks, count, values.of);
  const auto launch = [&](auto unit) {
    using Unit = decltype(unit);
    const int64_t units = copy.bytes / static_cast<int64_t>(sizeof(Unit));
    const unsigned grid = std::clamp(blocks_for(units), 1U, kMostCopying);
    write_live<Unit><<<grid, kThreads, 0, stream>>>(values, count, to, copy);
    return cudaGetLastError();
  };
  const auto bits = reinterpret_cast<uintptr_t>(copy.from) | reinterpret_cast<uintptr_t>(copy.to) |
                    static_cast<uintptr_t>(copy.bytes);
  if (bits % sizeof(uint4) == 0) return launch(uint4{});
  if (bits % sizeof(uint32_t) == 0) return launch(uint32_t{});
  return launch(uint8_t{});
}

int64_t mean_forward_workspace(int64_t num_edges) {
  return static_cast<int64_t>(sizeof(int64_t)) * (1 + num_edges / (kLongRow + 1));
}

int64_t mean_backward_workspace(int64_t num_src, int64_t num_edges, int64_t index_bytes, int64_t id_bytes) {
  if (index_bytes == 4) return lay_out<int32_t, int32_t>(nullptr, num_src, num_edges, nullptr);
  if (id_bytes == 4) return lay_out<int64_t, int32_t>(nullptr, num_src, num_edges, nullptr);
  return lay_out<int64_t, int64_t>(nullptr, num_src, num_edges, nullptr);
}

template <typename P, typename I>
int64_t lay_out(void* workspace, int64_t num_src, int64_t num_edges, TransposedBlock<P, I>* transposed) {
  int64_t used = 0;
  const auto take = [&](auto*& array, int64_t count) {
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(
        reinterpret_cast<uintptr_t>(workspace) + static_cast<uintptr_t>(used));
    used += aligned(count * static_cast<int64_t>(sizeof(*array)));
  };
  TransposedBlock<P, I> t;
  take(t.counters, 2);  // beside `length`: the two are zeroed together
  take(t.length, num_src);
  take(t.begin, num_src);
  take(t.rank, num_edges);
  take(t.destinations, num_edges);
  take(t.long_rows, num_edges / (kLongRow + 1));
  if (transposed != nullptr) *transposed = t;
  return used;
}

template <typename P, typename I>
cudaError_t launch_transpose(const DeviceBlock<P, I>& block, const I* sorted_sources, const int64_t* order,
                             const TransposedBlock<P, I>& t, cudaStream_t stream) {
  if (block.num_src == 0) return cudaSuccess;
  if (std::max(block.num_edges, block.num_src) / kThreads >= INT32_MAX) return cudaErrorInvalidConfiguration;
  const bool sorted = sorted_sources != nullptr;
  const auto zeroed = reinterpret_cast<uintptr_t>(sorted ? static_cast<void*>(t.length) : t.begin) -
                      reinterpret_cast<uintptr_t>(t.counters);
  if (const cudaError_t error = cudaMemsetAsync(t.counters, 0, zeroed, stream); error != cudaSuccess)
    return error;
  if (sorted) {
    place_sorted<<<blocks_for(block.num_src), kThreads, 0, stream>>>(block, sorted_sources, t);
    if (block.num_edges > 0)
      fill_sorted<<<blocks_for(block.num_edges), kThreads, 0, stream>>>(block, order, t);
    return cudaGetLastError();
  }
  if (block.num_edges > 0)
    count_edges<<<blocks_for(block.num_edges), kThreads, 0, stream>>>(block, t.length, t.rank);
  place_sources<<<blocks_for(block.num_src, kSourcesPerBlock), kThreads, 0, stream>>>(
      t.length, block.num_src, t.begin, t.counters, t.long_rows);
  if (block.num_edges > 0) fill<<<blocks_for(block.num_edges), kThreads, 0, stream>>>(block, t);
  return cudaGetLastError();
}

#define LOADER_INSTANTIATE(P, I)                                                            \
  template int64_t lay_out(void*, int64_t, int64_t, TransposedBlock<P, I>*);                \
  template cudaError_t launch_transpose(const DeviceBlock<P, I>&, const I*, const int64_t*, \
                                        const TransposedBlock<P, I>&, cudaStream_t);
LOADER_INSTANTIATE(int32_t, int32_t)
LOADER_INSTANTIATE(int64_t, int32_t)
LOADER_INSTANTIATE(int64_t, int64_t)

}  // namespace loader
