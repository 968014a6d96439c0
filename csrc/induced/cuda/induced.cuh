// The kernels of induced.h. The entries of all asked lists, one list after the other, are cut into chunks of
// equal length, one for a warp: so the longest list costs no more than others.
#pragma once

#include "block_sums.cuh"
#include "induced/cuda/induced.h"

namespace loader {

__device__ __forceinline__ void raise_to(uint64_t* at, uint64_t value) {
  atomicMax(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}

// Replaces numbers by the sums of those before them; one block.
__global__ void __launch_bounds__(kInducedThreads)
    induced_sums_kernel(const __grid_constant__ InducedSums call) {
  __shared__ int64_t warps[kInducedWarps];
  const int64_t count = call.count >= 0 ? call.count : induced_tiles(min(*call.entries, call.room));
  int64_t before = 0;
  for (int64_t first = 0; first < count; first += kInducedThreads) {
    const int64_t i = first + threadIdx.x;
    int64_t total;
    const int64_t sum = sum_before(i < count ? call.sums[i] : int64_t{0}, warps, total);
    if (i < count) call.sums[i] = before + sum;
    before += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) *call.total = before;
}

// Puts the vertices into the table, and reads where the asked lists lie.
template <typename P, typename N>
__global__ void __launch_bounds__(kInducedThreads)
    induced_table_kernel(const __grid_constant__ InducedCall<P, N> call) {
  const InducedAsked<P, N>& asked = call.asked;
  const int64_t i = int64_t{blockIdx.x} * kInducedThreads + threadIdx.x;
  const uint64_t mask = (uint64_t{1} << call.bits) - 1;
  if (i < asked.num_nodes) {
    if (!asked.is_given(i)) {
      raise_to(&call.report->wrong, kMostKey - static_cast<uint64_t>(i));
    } else {
      const uint64_t key = asked.key(asked.sets ? asked.sets[i] : 0, static_cast<int64_t>(asked.nodes[i]));
      for (uint64_t at = first_slot(key, call.bits);; at = (at + 1) & mask) {
        const uint64_t there = atomicCAS(reinterpret_cast<unsigned long long*>(call.keys + at), 0ull,
                                         static_cast<unsigned long long>(key + 1));
        if (there == 0) {
          call.places[at] = static_cast<int32_t>(i);
          const uint64_t bit = call.known_bit(key);
          atomicOr(call.known + bit / 32, 1u << bit % 32);
        }
        if (there == key + 1) raise_to(&call.report->repeated, kMostKey - key);
        if (there == 0 || there == key + 1) break;
      }
    }
  }
  int64_t length = 0, total;
  if (i < asked.num_rows) {
    const int64_t row = asked.row(i);
    ListOf<P> list{0, 0};
    if (row >= 0 && row < call.num_lists) list = asked.lists.list({row});
    length = list.end - list.begin;
    call.begins[i] = list.begin;
  }
  __shared__ int64_t warps[kInducedWarps];
  const int64_t before = sum_before(length, warps, total);
  if (i < asked.num_rows) call.firsts[i] = before;
  if (threadIdx.x == 0 && i < asked.num_rows) call.list_sums[blockIdx.x] = total;
}

// The slot of a key in the table, or -1, if slot `at`, where `there` is, was the first one looked at.
template <typename P, typename N>
__device__ __forceinline__ int64_t slot_of(const InducedCall<P, N>& call, uint64_t key, uint64_t at,
                                           uint64_t there) {
  const uint64_t mask = (uint64_t{1} << call.bits) - 1;
  while (there != key + 1) {
    if (there == 0) return -1;
    at = (at + 1) & mask;
    there = call.keys[at];
  }
  return static_cast<int64_t>(at);
}

// The asked list that has entry `e`: the last one that begins at it or earlier.
template <typename P, typename N>
__device__ __forceinline__ int64_t row_with(const InducedCall<P, N>& call, int64_t e) {
  int64_t low = 0, high = call.blocks_of_lists();  // the block of lists is in [low, high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (call.list_sums[middle] <= e ? low : high) = middle;
  }
  const int64_t within = e - call.list_sums[low];
  int64_t row = low * kInducedThreads;
#pragma unroll
  for (int step = kInducedThreads / 2; step > 0; step /= 2)
    if (row + step < call.asked.num_rows && call.firsts[row + step] <= within) row += step;
  return row;
}

// 32 asked lists that follow on each other, one in each lane of a warp, and where the entries of a chunk are
// in them.
template <typename P, typename N>
struct InducedWindow {
  const InducedCall<P, N>& call;
  const int64_t begin;     // first entry of the chunk
  int64_t base = 0;        // list of the first lane
  int32_t from = 0;        // where the lane's list begins, from `begin` on; -1: before it
  int64_t shift = 0;       // from an entry's number to its place in the lists
  uint64_t first_key = 0;  // of its set

  __device__ __forceinline__ void load(int64_t first_list) {
    base = first_list;
    const int64_t row = base + threadIdx.x % 32;
    from = INT32_MAX;
    if (row >= call.asked.num_rows) return;
    const int64_t first = call.first_entry(row);
    from = static_cast<int32_t>(min(max(first - begin, int64_t{-1}), int64_t{INT32_MAX}));
    shift = call.begins[row] - first;
    first_key = call.asked.key(call.asked.set_of_row(row), 0);
  }

  struct Found {
    int64_t row, at;  // the list of an entry, and its place in the lists
    uint64_t first_key;
  };

  // Of entry `begin` + `e` of each lane that has `open`. All lanes of the warp call it, with entries that
  // ascend from call to call.
  __device__ __forceinline__ Found find(int32_t e, bool open) {
    Found found{-1, -1, 0};
    for (bool next = true; __any_sync(~0u, open); next = !next) {
      int lane = 0;
#pragma unroll
      for (int step = 16; step > 0; step /= 2)
        if (__shfl_sync(~0u, from, lane + step) <= e) lane += step;
      const int64_t of_shift = __shfl_sync(~0u, shift, lane);
      const uint64_t of_key = __shfl_sync(~0u, first_key, lane);
      // The last lane's list ends in a list that is not here, unless there is none.
      if (open && (lane < 31 || base + 32 >= call.asked.num_rows)) {
        found = {base + lane, begin + e + of_shift, of_key};
        open = false;
      }
      const unsigned left = __ballot_sync(~0u, open);
      if (left == 0) break;
      const int32_t wanted = __shfl_sync(~0u, e, __ffs(static_cast<int>(left)) - 1);
      load(next ? base + 31 : row_with(call, begin + wanted));
    }
    return found;
  }
};

// Notes which entries are edges among the vertices, and adds them up for each chunk and tile. The number of
// entries is read here, so the host need not wait for it. A lane looks at several entries at once, as each
// takes up to four reads that wait for each other.
template <typename P, typename N>
__global__ void __launch_bounds__(kInducedThreads)
    induced_count_kernel(const __grid_constant__ InducedCall<P, N> call) {
  __shared__ int64_t warps[kInducedWarps];
  const int64_t entries = min(call.report->entries, call.room);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int64_t tile = blockIdx.x; tile * kInducedTile < entries; tile += gridDim.x) {
    const int64_t begin = tile * kInducedTile + warp * kInducedChunk;
    const auto count = static_cast<int32_t>(min(max(entries - begin, int64_t{0}), int64_t{kInducedChunk}));
    InducedWindow<P, N> window{call, begin};
    if (count > 0) window.load(row_with(call, begin));
    int64_t sum = 0;
    for (int32_t first = 0; first < count; first += 32 * kInducedAtOnce) {
      int64_t at[kInducedAtOnce];
      uint64_t key[kInducedAtOnce], slot[kInducedAtOnce], there[kInducedAtOnce];
      bool known[kInducedAtOnce];
#pragma unroll
      for (int u = 0; u < kInducedAtOnce; ++u) {
        const int32_t e = first + 32 * u + lane;
        const auto found = window.find(e, e < count);
        at[u] = found.at;
        key[u] = found.first_key;
      }
#pragma unroll
      for (int u = 0; u < kInducedAtOnce; ++u) {
        int64_t v = -1;
        if (at[u] >= 0) v = static_cast<int64_t>(call.asked.lists.read(static_cast<P>(at[u])));
        known[u] = call.asked.is_id(v);
        key[u] += static_cast<uint64_t>(v);
      }
#pragma unroll
      for (int u = 0; u < kInducedAtOnce; ++u) {
        const uint64_t bit = call.known_bit(key[u]);
        known[u] = known[u] && (call.known[bit / 32] >> bit % 32 & 1);
      }
#pragma unroll
      for (int u = 0; u < kInducedAtOnce; ++u) {
        slot[u] = first_slot(key[u], call.bits);
        there[u] = known[u] ? call.keys[slot[u]] : 0;
      }
#pragma unroll
      for (int u = 0; u < kInducedAtOnce; ++u) {
        const bool keep = known[u] && slot_of(call, key[u], slot[u], there[u]) >= 0;
        const unsigned bits = __ballot_sync(~0u, keep);
        const int32_t of_u = first + 32 * u;
        if (lane == 0 && of_u < count) call.found_bits[(begin + of_u) / 32] = bits;
        sum += __popc(bits);
      }
    }
    int64_t total;
    const int64_t before = sum_before(lane == 0 ? sum : int64_t{0}, warps, total);
    if (lane == 0) call.chunk_sums[tile * kInducedWarps + warp] = before;
    if (threadIdx.x == 0) call.tile_sums[tile] = total;
    __syncthreads();
  }
}

// Writes the edges that the kernel before has noted.
template <typename P, typename N>
__global__ void __launch_bounds__(kInducedThreads)
    induced_edges_kernel(const __grid_constant__ InducedCall<P, N> call) {
  const int64_t entries = call.report->entries;
  const int64_t chunk = int64_t{blockIdx.x} * kInducedWarps + threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  const int64_t begin = chunk * kInducedChunk;
  if (begin >= entries) return;  // all of the warp
  const auto count = static_cast<int32_t>(min(entries - begin, int64_t{kInducedChunk}));
  InducedWindow<P, N> window{call, begin};
  window.load(row_with(call, begin));
  int64_t to = call.tile_sums[blockIdx.x] + call.chunk_sums[chunk];
  for (int32_t first = 0; first < count; first += 32 * kInducedAtOnce) {
    typename InducedWindow<P, N>::Found found[kInducedAtOnce];
    uint64_t key[kInducedAtOnce], slot[kInducedAtOnce], there[kInducedAtOnce];
    unsigned bits[kInducedAtOnce];
#pragma unroll
    for (int u = 0; u < kInducedAtOnce; ++u) {
      const int32_t of_u = first + 32 * u;
      bits[u] = of_u < count ? call.found_bits[(begin + of_u) / 32] : 0;
    }
#pragma unroll
    for (int u = 0; u < kInducedAtOnce; ++u)
      found[u] = window.find(first + 32 * u + static_cast<int32_t>(lane), (bits[u] >> lane & 1) != 0);
#pragma unroll
    for (int u = 0; u < kInducedAtOnce; ++u) {
      key[u] = 0;
      if (found[u].at >= 0)
        key[u] =
            found[u].first_key + static_cast<uint64_t>(call.asked.lists.read(static_cast<P>(found[u].at)));
    }
#pragma unroll
    for (int u = 0; u < kInducedAtOnce; ++u) {
      slot[u] = first_slot(key[u], call.bits);
      there[u] = found[u].at >= 0 ? call.keys[slot[u]] : 0;
    }
#pragma unroll
    for (int u = 0; u < kInducedAtOnce; ++u) {
      if (found[u].at >= 0) {
        const int64_t own = to + __popc(bits[u] & ((1u << lane) - 1));
        call.out_sources[own] = call.places[slot_of(call, key[u], slot[u], there[u])];
        call.out_rows[own] = found[u].row;
        call.out_edges[own] = found[u].at;
      }
      to += __popc(bits[u]);
    }
  }
}

}  // namespace loader
