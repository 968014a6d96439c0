// One step of all walkers, ordered by the vertex that they stand on: the transit-parallel schedule of
// NextDoor (Jangda et al., EuroSys 2021).
//
// A warp's walkers stand on the same vertex or on neighboring ones, so their lists lie in the same lines of
// memory. That pays where a line is dear: in memory of the host.
#pragma once

#include <cstdint>

#include "walks/cuda/thread_blocks.h"
#include "walks/starts.h"
#include "walks/walk.h"
#include "walks/weighted.h"

namespace loader {

// `order`: [out.count] rows of the walkers.
template <class Lists, class Proposal, bool Coin>
__global__ __launch_bounds__(kTransitThreads) void walk_transit(
    const __grid_constant__ WalkLaw<Proposal, Coin, false> law, const __grid_constant__ Lists lists,
    WalkOut<typename Lists::Edge, typename Lists::Vertex> out, WalkStarts starts, const int64_t* order,
    uint32_t step) {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  constexpr uint32_t kShare = WalkWords<Proposal, Coin, false>::kShare;
  const int64_t i = int64_t{blockIdx.x} * kTransitThreads + threadIdx.x;
  if (i >= out.count) return;
  const int64_t row = order[i];
  N* const walk = out.vertices + row * (int64_t{out.length} + 1);
  N at = walk[step];
  if (step == 0) {
    const int64_t start = starts.wide ? static_cast<const int64_t*>(starts.ids)[row]
                                      : int64_t{static_cast<const int32_t*>(starts.ids)[row]};
    walk[0] = at = static_cast<N>(start);
    if (start < 0 || start >= starts.num_nodes) {
      starts.bad[1] = start;
      starts.bad[0] = 1;
      at = -1;
    }
  }
  Move<P, N> move{N{-1}, P{-1}};
  if (at >= 0) {
    Walker<P, N> walker{walk[0], at, N{-1}, {}};
    const Draws draws = law.draws(out.first_lane + static_cast<uint64_t>(row), step);
    move = law.step(lists, walker, draws, step, step % kShare, draws.block(0));
  }
  walk[step + 1] = move.vertex;
  if (out.places) out.places[row * int64_t{out.length} + step] = move.place;
}

}  // namespace loader
