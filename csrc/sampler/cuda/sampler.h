// The GPU sampler: what a launch takes, and its launchers. Raw device pointers and a stream in, error code
// out.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "sampler/pick.h"

namespace loader {

enum class Schedule : int { kCooperative = 0, kHopwise = 1 };

enum class SampleStatus : int64_t { kOk = 0, kOverflow = 1, kSeedRange = 2, kSeedDuplicate = 3 };

// Written by the kernel into pinned host memory, `sequence` last.
struct SampleHeader {
  int64_t frontiers[kMaxHops + 1];
  int64_t edges[kMaxHops];
  SampleStatus status;
  int64_t detail;  // the offending seed
  int64_t hops_done;
  uint64_t sequence;
};

template <typename P, typename N>
struct SampleArgs {
  const P* graph_indptr;   // [num_nodes + 1]
  const N* graph_indices;  // [num_edges], device or pinned host memory
  int64_t num_nodes;
  const N* seeds;  // [num_seeds]
  int64_t num_seeds;
  int hops;
  int fanouts[kMaxHops];  // hop order
  int replace;
  uint64_t key;

  // Outputs, hop order; the capacities bound what is written.
  N* nodes;               // [frontier_capacity[hops]]
  P* indptr[kMaxHops];    // [frontier_capacity[h] + 1]
  N* indices[kMaxHops];   // [edge_capacity[h]]
  P* edge_ids[kMaxHops];  // the same, or null
  int64_t frontier_capacity[kMaxHops + 1];
  int64_t edge_capacity[kMaxHops];

  // Workspace. The bitmaps are zero between calls.
  uint32_t* seen;             // [(num_nodes + 31) / 32], vertices of the frontier so far
  uint32_t* fresh;            // the same, vertices found at this hop
  N* local;                   // [num_nodes] local ids
  P* row_begin;               // [frontier_capacity[hops - 1]] where a row's neighbour list begins
  uint32_t* row_degree;       // the same, its length
  int64_t* totals;            // [workspace_totals()] partial sums of blocks and warps
  SampleHeader* header;       // device memory
  SampleHeader* host_header;  // pinned host memory
  uint64_t sequence;
};

// Number of int64 entries of SampleArgs::totals.
int64_t workspace_totals();

// Launches the sampling of one mini-batch on `stream`. `blocks_per_sm`: 0 for the schedule's own choice.
// `launches` receives the number of kernels launched.
template <typename P, typename N>
cudaError_t launch_sample(const SampleArgs<P, N>& args, Schedule schedule, int blocks_per_sm, int* launches,
                          cudaStream_t stream);

}  // namespace loader
