// The kernels of induced.h. The entries of all asked lists, one list after the other, are cut into chunks of
// equal length, one for a warp: so the longest list costs no more than others.
#pragma once

#include "induced/cuda/induced.h"

namespace loader {

__device__ __forceinline__ void raise_to(uint64_t* at, uint64_t value) {
  atomicMax(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}

// Puts the vertices into the table, and reads where the asked lists lie.
template <typename P, typename N>
__global__ void __launch_bounds__(kInducedThreads)
    induced_table_kernel(const __grid_constant__ InducedCall<P, N> call) {
  const InducedAsked<P, N>& asked = call.asked;
  const int64_t i = int64_t{blockIdx.x} * kInducedThreads + threadIdx.x;
  const uint64_t mask = (uint64_t{1} << call.bits) - 1;
  if (i < asked.num_nodes) {
    const auto v = static_cast<int64_t>(asked.nodes[i]);
    if (!asked.is_id(v)) {
      raise_to(&call.report->wrong, kMostKey - static_cast<uint64_t>(i));
    } else {
      const uint64_t key = asked.key(asked.sets ? asked.sets[i] : 0, v);
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
  uint64_t length = 0;
  if (i < asked.num_rows) {
    const int64_t row = asked.row(i);
    ListOf<P> list{0, 0};
    if (row >= 0 && row < call.num_lists) list = asked.lists.list({row});
    length = static_cast<uint64_t>(list.end - list.begin);
    call.begins[i] = list.begin;
    call.ends[i + 1] = static_cast<int64_t>(length);
    if (i == 0) call.ends[0] = 0;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) length += __shfl_xor_sync(~0u, length, offset);
  if (threadIdx.x % 32 == 0 && length > 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(&call.report->entries),
              static_cast<unsigned long long>(length));
}

// The place of a vertex, or -1.
template <typename P, typename N>
__device__ __forceinline__ int32_t place_of(const InducedCall<P, N>& call, uint64_t key) {
  const uint64_t bit = call.known_bit(key);
  if (!(call.known[bit / 32] >> bit % 32 & 1)) return -1;
  const uint64_t mask = (uint64_t{1} << call.bits) - 1;
  for (uint64_t at = first_slot(key, call.bits);; at = (at + 1) & mask) {
    const uint64_t there = call.keys[at];
    if (there == key + 1) return call.places[at];
    if (there == 0) return -1;
  }
}

// The asked list that has entry `e`, not before `row`: the last one that begins at it or earlier. Steps
// double until they are beyond it, as it is mostly near.
__device__ __forceinline__ int64_t row_with(const int64_t* ends, int64_t num_rows, int64_t row, int64_t e) {
  int64_t step = 1;
  while (row + step < num_rows && ends[row + step] <= e) {
    row += step;
    step *= 2;
  }
  for (; step > 0; step /= 2)
    if (row + step < num_rows && ends[row + step] <= e) row += step;
  return row;
}

// Where a thread of a warp is in a chunk.
struct InducedPlace {
  int64_t row = -1;        // the list of its entry
  int64_t end = 0;         // the entry at which the next list begins
  int64_t shift = 0;       // from an entry's number to its place in the lists
  uint64_t first_key = 0;  // of its set

  template <typename P, typename N>
  __device__ __forceinline__ void go_to(const InducedCall<P, N>& call, int64_t e) {
    if (row >= 0 && e < end) return;
    row = row_with(call.ends, call.asked.num_rows, row < 0 ? 0 : row, e);
    end = call.ends[row + 1];
    shift = call.begins[row] - call.ends[row];
    first_key = call.asked.key(call.asked.set_of_row(row), 0);
  }
};

// Notes which entries are edges among the vertices, and adds them up for each chunk.
template <typename P, typename N>
__global__ void __launch_bounds__(kInducedThreads)
    induced_count_kernel(const __grid_constant__ InducedCall<P, N> call) {
  const int64_t chunk = (int64_t{blockIdx.x} * kInducedThreads + threadIdx.x) / 32;
  const unsigned lane = threadIdx.x % 32;
  if (chunk >= call.chunks()) return;  // all of the warp
  InducedPlace place;
  int64_t sum = 0;
  for (int64_t first = chunk * kInducedChunk; first < (chunk + 1) * kInducedChunk && first < call.entries;
       first += 32) {
    const int64_t e = first + lane;
    bool keep = false;
    if (e < call.entries) {
      place.go_to(call, e);
      const auto v = static_cast<int64_t>(call.asked.lists.read(static_cast<P>(e + place.shift)));
      keep = call.asked.is_id(v) && place_of(call, place.first_key + static_cast<uint64_t>(v)) >= 0;
    }
    const unsigned bits = __ballot_sync(~0u, keep);
    if (lane == 0) call.found_bits[first / 32] = bits;
    sum += __popc(bits);
  }
  if (lane == 0) {
    call.sums[chunk + 1] = sum;
    if (chunk == 0) call.sums[0] = 0;
  }
}

// Writes the edges that the kernel before has noted.
template <typename P, typename N>
__global__ void __launch_bounds__(kInducedThreads)
    induced_edges_kernel(const __grid_constant__ InducedCall<P, N> call) {
  const int64_t chunk = (int64_t{blockIdx.x} * kInducedThreads + threadIdx.x) / 32;
  const unsigned lane = threadIdx.x % 32;
  if (chunk >= call.chunks()) return;
  InducedPlace place;
  int64_t to = call.sums[chunk];
  for (int64_t first = chunk * kInducedChunk; first < (chunk + 1) * kInducedChunk && first < call.entries;
       first += 32) {
    const unsigned bits = call.found_bits[first / 32];
    if (bits >> lane & 1) {
      place.go_to(call, first + lane);
      const int64_t at = first + lane + place.shift;
      const auto v = static_cast<uint64_t>(call.asked.lists.read(static_cast<P>(at)));
      const int64_t own = to + __popc(bits & ((1u << lane) - 1));
      call.out_sources[own] = place_of(call, place.first_key + v);
      call.out_rows[own] = place.row;
      call.out_edges[own] = at;
    }
    to += __popc(bits);
  }
}

}  // namespace loader
