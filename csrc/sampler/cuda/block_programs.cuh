// What a thread block of each kernel does. The kernels themselves are in kernels.cuh.
#pragma once

#include "sampler/cuda/cooperative.cuh"
#include "sampler/cuda/list_scan.cuh"
#include "sampler/cuda/run_pinned_lines.cuh"
#include "sampler/cuda/scan_picks.cuh"

namespace loader {

// Hop-by-hop picks of one hop.
template <int Widest, typename Phases>
__device__ void pick_hop(const Phases& phases, int hop, int64_t rows, int64_t edges, unsigned char* stage) {
  using N = typename Phases::Vertex;
  const int fanout = phases.args.fanouts[hop - 1];
  if constexpr (Phases::kScans) {
    if (fanout == kAllNeighbors && !ScanPicks<Phases>::kRaces)
      phases.pick_all(hop, rows, edges, phases.taking(hop));
    else
      ScanPicks<Phases>(phases, hop).pick(rows);
  } else if constexpr (Widest != kWide) {
    with_width<Widest>(fanout, [&](auto width) {
      phases.template pick<decltype(width)::value>(hop, rows, reinterpret_cast<N*>(stage));
    });
  } else if (fanout == kAllNeighbors) {
    phases.pick_all(hop, rows, edges, phases.taking(hop));
  } else {
    phases.pick_wide(hop, rows, reinterpret_cast<uint32_t*>(stage), phases.taking(hop));
  }
}

// What the first `rows` vertices pick at hop + 1. A warp's lanes agree on whether there was an error, also
// where another warp is about to find a bad weight.
template <bool OneLaunch, typename Weights, typename Phases>
__device__ __forceinline__ void scan_lists(const Phases& phases, int hop, int64_t rows,
                                           unsigned char* memory) {
  if (__any_sync(kFullMask, phases.status() != SampleStatus::kOk)) return;
  Scan<Phases, Weights>(phases, hop + 1).template count<OneLaunch>(rows, memory);
}

// The same out of line, for kernels that do more: it needs many registers for itself.
template <typename Phases>
__device__ __noinline__ void scan_lists_apart(const Phases& phases, int hop, int64_t rows,
                                              unsigned char* memory) {
  scan_lists<true, AnyWeights>(phases, hop, rows, memory);
}

// All hops in one launch, barriers of the mini-batch's blocks between the phases of each.
template <int Widest, typename Args, typename Sync>
__device__ void run_phases(const HopwisePhases<Args>& phases, const Sync& sync, unsigned char* stage) {
  phases.start();
  __syncwarp();
  int64_t rows = phases.num_seeds(), edges = 0;
  bool ok = true;
  // Hop 0, the seeds, goes through the same code, so that there is less to compile.
  for (int hop = 0; ok && hop <= phases.args.hops; ++hop) {
    if (hop > 0) {
      pick_hop<Widest>(phases, hop, rows, edges, stage);
      sync();
    }
    phases.count(hop, rows);
    sync();
    ok = (hop > 0 || may_assign(phases, hop)) && phases.assign(hop, rows, edges);
    sync();
  }
  finish_phases(phases, ok);
}

// All hops in one launch, a barrier between hops, the blocks put in order at the end.
template <int Widest, typename Args, typename Sync>
__device__ void run_cooperative(const Cooperative<Args>& sampling, const Sync& sync, unsigned char* stage) {
  using P = typename Args::Edge;
  using N = typename Args::Vertex;
  const Args& args = sampling.args;
  const Assembly<Args> assembly(args, sampling.slot, sampling.block, sampling.blocks);
  int64_t rows_of[kMaxHops], first = 0, known = 0;
  for (int hop = 1; hop <= args.hops; ++hop) {
    const int64_t rows = hop == 1 ? sampling.num_seeds()
                                  : min(sampling.listed(hop - 1, known),
                                        args.frontier_capacity[hop - 1] + sampling.num_seeds());
    rows_of[hop - 1] = rows;
    with_width<Widest>(args.fanouts[hop - 1], [&](auto width) {
      constexpr int K = decltype(width)::value;
      sampling.template sample_hop<K>(hop, rows, known, first, reinterpret_cast<N*>(stage));
      first += (rows + 31) / 32 * 32 * K;
    });
    known = rows;
    sync();
  }
  const SampleStatus status = sampling.status();
  const bool seeds_are_good = status == SampleStatus::kOk || status == SampleStatus::kOverflow;
  if (seeds_are_good) assembly.count();
  sync();
  if (sampling.block == 0 && threadIdx.x == 0) {
#pragma unroll 1
    for (int hop = 1; hop < args.hops; ++hop) sampling.state().found.of_hop[hop - 1] = 0;
    if (!seeds_are_good) sampling.publish();
  }
  const bool ok = seeds_are_good && assembly.assign();
  sync();
  if (!ok) {
    sampling.clean();
    if (args.pad) sampling.fill_rest(true);
    return;
  }
  first = 0;
  for (int hop = 1; hop <= args.hops; ++hop) {
    with_width<Widest>(args.fanouts[hop - 1], [&](auto width) {
      constexpr int K = decltype(width)::value;
      const int64_t group = int64_t{threadIdx.x / 32} * sampling.blocks + sampling.block;
      for (int64_t at = group * 32; at < rows_of[hop - 1]; at += sampling.warps() * 32) {
        int64_t out = 0;
        uint32_t count = 0;
        if (at + sampling.lane < rows_of[hop - 1]) {
          const int64_t row = sampling.local()[sampling.list()[at + sampling.lane]];
          const P* const indptr = sampling.indptr(hop) + row;
          out = indptr[0];
          count = static_cast<uint32_t>(indptr[1] - indptr[0]);
        }
        assembly.template write<K>(args.indices_at[hop - 1] + out, args.edge_ids_at[hop - 1] + out, count,
                                   first + at * K);
      }
      first += (rows_of[hop - 1] + 31) / 32 * 32 * K;
    });
  }
  if (args.pad) sampling.fill_rest(false);
}

template <int Widest, typename Args>
__device__ void cooperative_block(const Args& args, unsigned char* stage) {
  using Sampling = Cooperative<Args>;
  with_own_batch<Sampling>(args, [&](const Sampling& sampling) {
    const auto sync = [&] {
      group_barrier(&sampling.state().barrier.value, sampling.block, sampling.blocks);
    };
    run_cooperative<Widest>(sampling, sync, stage);
  });
}

// The phases of sampling hop by hop, in one launch.
template <int Widest, typename Args>
__device__ void phases_block(const Args& args, unsigned char* stage) {
  using Phases = HopwisePhases<Args>;
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    const auto sync = [&] { group_barrier(&phases.state().barrier.value, phases.block, phases.blocks); };
    run_phases<Widest>(phases, sync, stage);
  });
}

// With a hash set: all hops in one launch, barriers between the phases of each.
template <int Widest, typename Args, typename Sync>
__device__ void run_hashed(const HashedPhases<Args>& phases, const Sync& sync, unsigned char* stage) {
  using Phases = HashedPhases<Args>;
  auto* const words = reinterpret_cast<uint32_t*>(stage);
  const int hops = phases.args.hops;
  phases.start();
  int64_t rows = phases.num_seeds(), edges = 0;
  bool ok = true;
  // Hop 0, the seeds, goes through the same code, so that there is less to compile.
  for (int hop = 0;; ++hop) {
    if (hop > 0) {
      const int64_t old_rows = rows;
      sync();
      pick_hop<Widest>(phases, hop, rows, edges, stage);
      sync();
      ok = phases.group(hop, rows, words);
      if (!ok) break;
      sync();
      phases.rank(hop, old_rows, rows, words);
      if (hop == hops) break;
    }
    if constexpr (Phases::kScans) {
      sync();
      scan_lists_apart(phases, hop, rows, stage);
      sync();
    } else if (hop > 0) {
      sync();
    } else {
      __syncwarp();  // each warp counts the rows that it made
    }
    phases.count(hop, rows);
    sync();
    ok = ((hop > 0 && !Phases::kScans) || may_assign(phases, hop)) && phases.assign(hop, rows, edges);
    if (!ok) break;
  }
  sync();
  finish_phases(phases, ok);
}

template <int Widest, typename Args>
__device__ void hashed_block(const Args& args, unsigned char* stage) {
  using Phases = HashedPhases<Args>;
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    const auto sync = [&] { group_barrier(&phases.state().barrier.value, phases.block, phases.blocks); };
    run_hashed<Widest>(phases, sync, stage);
  });
}

// The phases of each hop, one launch per phase.
template <typename Phases, typename Args>
__device__ void start_block(const Args& args) {
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    phases.start();
    if constexpr (!Phases::kScans) {  // else `scan` and `count` follow
      __syncwarp();
      phases.count(0, phases.num_seeds());
    }
  });
}

template <int Widest, typename Phases, typename Args>
__device__ void pick_block(const Args& args, int hop, unsigned char* stage) {
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    if (phases.status() != SampleStatus::kOk) return;
    const SampleHeader& header = phases.header();
    pick_hop<Widest>(phases, hop, header.frontiers[hop - 1], header.edges[hop - 1], stage);
  });
}

// Counts what the vertices known after `hop` pick at the next one.
template <typename Weights, typename Args>
__device__ void scan_block(const Args& args, int hop, unsigned char* memory) {
  using Phases = HashedPhases<Args>;  // the set is not looked at
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    scan_lists<false, Weights>(phases, hop, phases.known_rows(hop), memory);
  });
}

template <typename Phases, typename Args>
__device__ void count_block(const Args& args, int hop) {
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    if (phases.status() == SampleStatus::kOk) phases.count(hop, phases.known_rows(hop));
  });
}

template <typename Phases, typename Args>
__device__ void assign_block(const Args& args, int hop) {
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    if (!may_assign(phases, hop)) return;
    int64_t rows = phases.known_rows(hop), edges = 0;
    phases.assign(hop, rows, edges);
  });
}

template <typename Phases, typename Args>
__device__ void finish_block(const Args& args) {
  with_own_batch<Phases>(
      args, [&](const Phases& phases) { finish_phases(phases, phases.status() == SampleStatus::kOk); });
  forget_lines(args, gridDim.x);
}

// Those that only a hash set has, and bitmaps with a scan of the lists.
template <typename Phases, typename Args>
__device__ void group_block(const Args& args, int hop, unsigned char* stage) {
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    if (phases.status() != SampleStatus::kOk) return;
    int64_t rows = phases.header().frontiers[hop - 1];
    phases.group(hop, rows, reinterpret_cast<uint32_t*>(stage));
  });
}

template <typename Phases, typename Args>
__device__ void rank_block(const Args& args, int hop, unsigned char* stage) {
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    // All threads of a block agree: another block may be about to find that the outputs are too small.
    if (!may_assign(phases, hop)) return;
    const SampleHeader& header = phases.header();
    phases.rank(hop, header.frontiers[hop - 1], header.frontiers[hop], reinterpret_cast<uint32_t*>(stage));
  });
}

}  // namespace loader
