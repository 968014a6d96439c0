// The law of random walks, written once for host and device.
//
// A walker goes from the vertex that it stands on to one of the neighbors that are listed there. Which one
// is a pure function of (key, walker, step): the lane of its draws is the walker, so two walkers that meet
// part again.
//
// A step takes, in this order, the words that its law needs:
//
//   a coin      only if walks may stop or go home (personalised PageRank): below `stop_below` the walk ends,
//               else below `home_below` the walker goes back to where it began
//   a proposal  one neighbor, see UniformProposal
//   a verdict   only of node2vec's second order: whether the proposal is accepted
//
// So a Philox block of four words serves four steps of a plain walk and two of one with a coin: step t takes
// words from the block of draws step t / kShare, beginning at word t % kShare * kWords.
//
// node2vec's second order: see walks/second_order.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "graph/metapath.h"
#include "graph/search.h"
#include "sampler/pick.h"

namespace loader {

constexpr uint32_t kMaxWalkLength = (1u << 24) - 1;

// What decides a walk beside the lists.
struct WalkRules {
  uint64_t key;                     // of the mini-batch, for walks
  uint64_t stop_below, home_below;  // out of 2^32, stop_below <= home_below
  uint32_t back, common, far;       // a proposal is accepted if its coin is at most this, by what it is
  uint64_t extra;                   // mass of a copy of the vertex before beyond 2^32, see second_order.h
};

// A step taken: the vertex, and the place of the edge in the lists. -1: the walk ended; no edge was followed.
template <typename P, typename N>
struct Move {
  N vertex;
  P place;
};

enum class Toss { kGo, kStop, kHome };

LOADER_HD Toss toss(const WalkRules& rules, uint32_t coin) {
  return coin < rules.stop_below ? Toss::kStop : coin < rules.home_below ? Toss::kHome : Toss::kGo;
}

// All neighbors alike. A proposal has two halves, so that who has many walkers can let memory work between
// them: `aim` says where it looks, without reading, and `take` reads there.
struct UniformProposal {
  static constexpr int kWords = 1;
  static constexpr bool kFolds = true;  // of the second order, see second_order.h

  // `word` gives draw number i; `degree` > 0.
  template <typename P>
  LOADER_HD P aim(const Draws& draws, ListOf<P> list, uint32_t word, uint32_t i) const {
    return static_cast<P>(list.begin + draws.bounded(word, list.degree(), i));
  }
  template <class Lists>
  LOADER_HD void prefetch(const Lists& lists, typename Lists::Edge at) const {
#ifndef __CUDA_ARCH__
    prefetch_entry(lists, at);
#endif
  }
  template <class Lists>
  LOADER_HD Move<typename Lists::Edge, typename Lists::Vertex> take(const Lists& lists,
                                                                    typename Lists::Edge at, uint32_t) const {
    return {lists.read(at), at};
  }
};

// Which words a step takes.
template <class Proposal, bool Coin, bool Second>
struct WalkWords {
  static constexpr int kWords = Coin + Proposal::kWords + Second;
  static constexpr int kShare = kWords <= 4 ? 4 / kWords : 1;  // steps of one block
  static constexpr int kAgain = Proposal::kWords + 1;          // words of another try
  static constexpr int kAgainShare = 4 / kAgain;
  static_assert(kWords <= 4, "a step takes its words from one block");

  // Number of the first draw of try `attempt` >= 1, in the step that is number j of its block. Draw i is word
  // i % 4 of block i / 4.
  LOADER_HD static uint32_t again(uint32_t j, uint32_t attempt) {
    const uint32_t block = 1 + j + kShare * ((attempt - 1) / kAgainShare);
    return 4 * block + (attempt - 1) % kAgainShare * kAgain;
  }
};

// The walks of one call. Row i of `vertices` is the walk of walker `first_lane` + i.
template <typename P, typename N>
struct WalkOut {
  const N* starts;  // [count]
  int64_t count;
  uint64_t first_lane;
  uint32_t length;  // steps
  N* vertices;      // [count, length + 1]; -1 after the end of a walk
  P* places;        // [count, length], or nullptr: of the edges that were followed, -1 for none
};

// A walker under way.
template <typename P, typename N>
struct Walker {
  N start, at;
  N previous;        // -1: none, at the start and after going home
  ListOf<P> before;  // the list of `previous`
};

// Takes step `step` of a walker. `block` is the one of this step, see `block_of`.
template <class Proposes, bool Coin, bool Second>
struct WalkLaw {
  using Proposal = Proposes;
  using Plan = WalkWords<Proposal, Coin, Second>;
  static constexpr bool kCoin = Coin, kSecond = Second;
  static constexpr int kProposal = Proposal::kWords;

  WalkRules rules;
  Proposal proposal;

  LOADER_HD Draws draws(uint64_t lane, uint32_t step) const { return {rules.key, lane, step / Plan::kShare}; }

  // j is step % kShare, which the caller knows while it compiles.
  template <class Lists>
  LOADER_HD Move<typename Lists::Edge, typename Lists::Vertex> step(
      const Lists& lists, Walker<typename Lists::Edge, typename Lists::Vertex>& walker, const Draws& draws,
      uint32_t step, uint32_t j, const Words& block) const {
    using P = typename Lists::Edge;
    using N = typename Lists::Vertex;
    static_assert(!Second, "a step of the second order is tries: SecondOrderWalkers', or a kernel's");
    const uint32_t first = j * Plan::kWords;
    if constexpr (Coin) {
      const Toss side = toss(rules, block.w[first]);
      if (side == Toss::kStop) return {N{-1}, P{-1}};
      if (side == Toss::kHome) {
        walker.at = walker.start;
        walker.previous = -1;
        return {walker.at, P{-1}};
      }
    }
    const ListOf<P> list = lists.list(lists.row(walker.at, step));
    if (list.begin == list.end) return {N{-1}, P{-1}};
    const uint32_t at = first + Coin;
    const P place = proposal.aim(draws, list, block.w[at], at);
    const Move<P, N> move = proposal.take(lists, place, block.w[(at + Proposal::kWords - 1) & 3]);
    walker.at = move.vertex;
    return move;
  }
};

}  // namespace loader
