// Scans of lists by a warp, for walkers of the second order whose tries were refused too often.
#pragma once

#include <cstdint>

#include "walks/second_order.h"

namespace loader {

// What a walker looks for beside its proposals.
enum class Seek {
  kNothing,
  kListed,  // the proposal, in the list of the vertex before
  kFirst,   // the first copy of the vertex before in its own list
  kLast,    // the last one
};

// As scan_second_order, by all threads of a warp, of which each gets the same.
template <class Lists>
__device__ Move<typename Lists::Edge, typename Lists::Vertex> scan_together(
    const WalkRules& rules, const Lists& lists, ListOf<typename Lists::Edge> list,
    ListOf<typename Lists::Edge> before, typename Lists::Vertex previous, const Draws& draws, uint32_t j,
    int lane) {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  constexpr unsigned kAll = 0xffffffffu;
  const auto degree = static_cast<uint32_t>(list.degree());
  uint64_t others = 0;
  uint32_t first = degree, copies = 0;  // of the vertex before
  for (uint32_t i = static_cast<uint32_t>(lane); i < degree; i += 32) {
    const N x = lists.read(static_cast<P>(list.begin + i));
    if (x != previous) {
      others += mass_of(rules, lists, before, previous, x);
    } else {
      ++copies;
      first = first < i ? first : i;
    }
  }
  for (int by = 16; by > 0; by /= 2) {
    others += __shfl_xor_sync(kAll, others, by);
    copies += __shfl_xor_sync(kAll, copies, by);
    const uint32_t its = __shfl_xor_sync(kAll, first, by);
    first = first < its ? first : its;
  }
  const uint32_t index = kScanBlock + j;
  const Share share = share_out(rules, draws, others, copies, index, draws.block(index));
  if (share.copy >= 0) return {previous, static_cast<P>(list.begin + first + share.copy)};
  uint64_t left = share.at;
  for (uint32_t i = static_cast<uint32_t>(lane);; i += 32) {
    N x = previous;
    if (i < degree) x = lists.read(static_cast<P>(list.begin + i));
    uint64_t up_to = x == previous ? 0 : mass_of(rules, lists, before, previous, x);
    for (unsigned by = 1; by < 32; by *= 2) {
      const uint64_t below = __shfl_up_sync(kAll, up_to, by);
      if (static_cast<unsigned>(lane) >= by) up_to += below;
    }
    const unsigned behind = __ballot_sync(kAll, left < up_to);
    if (behind) {
      const int who = __ffs(behind) - 1;
      return {__shfl_sync(kAll, x, who),
              static_cast<P>(list.begin + (i - static_cast<uint32_t>(lane)) + who)};
    }
    left -= __shfl_sync(kAll, up_to, 31);
  }
}

// The steps of all walkers of a warp who wait for a scan, one after the other.
template <class Lists>
__device__ Move<typename Lists::Edge, typename Lists::Vertex> scan_in_turn(
    const WalkRules& rules, const Lists& lists, const ListOf<typename Lists::Edge>& list,
    const Walker<typename Lists::Edge, typename Lists::Vertex>& walker, const Draws& draws, uint32_t j,
    int lane, bool waits) {
  constexpr unsigned kAll = 0xffffffffu;
  Move<typename Lists::Edge, typename Lists::Vertex> own{};
  for (unsigned waiting = __ballot_sync(kAll, waits); waiting; waiting &= waiting - 1) {
    const int who = __ffs(waiting) - 1;
    const auto his = [&](auto value) { return __shfl_sync(kAll, value, who); };
    const auto made = scan_together(rules, lists, {his(list.begin), his(list.end)},
                                    {his(walker.before.begin), his(walker.before.end)}, his(walker.previous),
                                    Draws{rules.key, his(draws.lane), his(draws.step)}, his(j), lane);
    if (lane == who) own = made;
  }
  return own;
}

}  // namespace loader
