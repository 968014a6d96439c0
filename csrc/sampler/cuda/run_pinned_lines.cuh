// What a thread block does if lists are read by the line, in one launch or in several.
#pragma once

#include "sampler/cuda/phases.cuh"
#include "sampler/cuda/pinned_lines.cuh"

namespace loader {

// The picks of one hop, as places.
template <int Widest, typename Args>
__device__ void place_hop(const PlacePicks<Args>& picks, int hop, int64_t rows, int64_t edges,
                          unsigned char* stage) {
  const int fanout = picks.args.fanouts[hop - 1];
  const auto put = [&](int64_t row, typename Args::Edge begin, typename Args::Edge i, typename Args::Edge out,
                       bool valid) { picks.put(hop, row, begin, i, out, valid); };
  if constexpr (Widest != kWide)
    with_width<Widest>(
        fanout, [&](auto width) { picks.template pick_by_threads<decltype(width)::value>(hop, rows); });
  else if (fanout == kAllNeighbors)
    picks.pick_all(hop, rows, edges, put);
  else
    picks.pick_wide(hop, rows, reinterpret_cast<uint32_t*>(stage), put);
}

// At the end of a launch, by the first `blocks` blocks.
template <typename Args>
__device__ __forceinline__ void forget_lines(const Args& args, int blocks) {
  LineSet<typename Args::Edge, typename Args::Vertex>(args.lines, args.hops)
      .forget(int64_t{blockIdx.x} * kBlock + threadIdx.x, int64_t{blocks} * kBlock);
}

// The same, by the warps of the first `blocks` blocks. Neighboring parts of the bitmap of lines go to
// different multiprocessors.
template <typename P, typename N>
__device__ __forceinline__ void fetch_lines(const LineArgs<P, N>& args, int hops, int hop, int blocks) {
  LineSet<P, N>(args, hops)
      .fetch(hop, int64_t{threadIdx.x / 32} * blocks + blockIdx.x, int64_t{blocks} * kWarps);
}

// Lists that are read by the line: all hops in one launch. The mini-batches of a launch fetch lines together,
// so all of its blocks meet, also those of a mini-batch that failed. Bitmaps only.
template <int Widest, typename Args>
__device__ void lined_block(const Args& args, unsigned char* stage) {
  using Phases = HopwisePhases<Args>;
  const int blocks = gridDim.x / args.num_batches, all = blocks * args.num_batches;
  if (static_cast<int>(blockIdx.x) >= all) return;
  const int slot = blockIdx.x / blocks, block = blockIdx.x % blocks, hops = args.hops;
  const int fetching = args.lines.blocks_that_fetch(all);
  const Phases phases(args, slot, block, blocks);
  const PlacePicks<Args> picks(args, slot, block, blocks);
  const auto sync = [&] { group_barrier(&phases.state().barrier.value, block, blocks); };
  const auto sync_all = [&] { group_barrier(&args.state->together.value, blockIdx.x, all); };
  phases.start();
  __syncwarp();
  int64_t rows = phases.num_seeds(), edges = 0;
  bool ok = true;
  // Hop 0, the seeds, goes through the same code, so that there is less to compile.
  for (int hop = 0; hop <= hops; ++hop) {
    if (hop > 0) {
      sync();
      if (ok) place_hop<Widest>(picks, hop, rows, edges, stage);
      sync_all();
      if (args.lines.marks) {
        if (static_cast<int>(blockIdx.x) < fetching) fetch_lines(args.lines, hops, hop, fetching);
        sync_all();
      }
      if (ok) take_places(phases, hop, edges);
      sync();
    }
    if (ok) phases.count(hop, rows);
    sync();
    ok = ok && (hop > 0 || may_assign(phases, hop)) && phases.assign(hop, rows, edges);
  }
  sync_all();
  finish_phases(phases, ok);
  forget_lines(args, all);
}

// A launch per phase.
template <int Widest, typename Args>
__device__ void places_block(const Args& args, int hop, unsigned char* stage) {
  with_own_batch<PlacePicks<Args>>(args, [&](const PlacePicks<Args>& picks) {
    if (picks.status() != SampleStatus::kOk) return;
    const SampleHeader& header = picks.header();
    place_hop<Widest>(picks, hop, header.frontiers[hop - 1], header.edges[hop - 1], stage);
  });
}

template <typename P, typename N>
__device__ void fetch_block(const LineArgs<P, N>& args, int hops, int hop) {
  fetch_lines(args, hops, hop, gridDim.x);
}

template <typename Phases, typename Args>
__device__ void take_block(const Args& args, int hop) {
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    if (phases.status() == SampleStatus::kOk) take_places(phases, hop, phases.header().edges[hop - 1]);
  });
}

}  // namespace loader
