// The law of random walks, written once for host and device.
//
// A walker goes from the vertex that it stands on to one of the neighbours that are listed there. Which one
// is a pure function of (key, walker, step): the lane of its draws is the walker, so two walkers that meet
// part again.
//
// A step takes, in this order, the words that its law needs:
//
//   a coin      only if walks may stop or go home (personalised PageRank): below `stop_below` the walk ends,
//               else below `home_below` the walker goes back to where it began
//   a proposal  one neighbour, see UniformProposal
//   a verdict   only of node2vec's second order: whether the proposal is accepted
//
// So a Philox block of four words serves four steps of a plain walk and two of one with a coin: step t takes
// words from the block of draws step t / kShare, beginning at word t % kShare * kWords.
//
// node2vec (Grover and Leskovec, KDD 2016): from t, the vertex before, over v to x with a probability in
// proportion to 1/p if x is t, 1 if x is listed at t, and 1/q otherwise. By rejection, with the way back
// folded as KnightKing does (Yang et al., SOSP 2019): every neighbour has a mass of 2^32, the larger of 1 and
// 1/q, of which as much is accepted as its weight says. If 1/p is larger still, each copy of t in the list
// has `extra` mass on top, in a part of its own: the part is as large as for the most copies that t has in
// any list, and a try that falls upon a copy that is not there is refused. So no try is lost to a large 1/p.
// All masses are integers, and the law is exact for weights rounded to them. Whether x is listed at t is
// searched only if the coin lies between the two thresholds that this decides between. After kMaxTries
// refusals the list is scanned instead: the law is the same, and the time is bounded whatever p and q are.
//
// Steps by weight have no such part: of the three the largest is accepted always.
#pragma once

#include <cstdint>
#include <type_traits>

#include "sampler/pick.h"
#include "walks/lists.h"

namespace loader {

constexpr uint32_t kMaxWalkLength = (1u << 24) - 1;
constexpr uint32_t kMaxTries = 64;
constexpr uint32_t kScanBlock = 1u << 31;  // index of the block that decides a scan; tries have lower ones

// What decides a walk beside the lists.
struct WalkRules {
  uint64_t key;                     // of the mini-batch, for walks
  uint64_t stop_below, home_below;  // out of 2^32, stop_below <= home_below
  uint32_t back, common, far;       // a proposal is accepted if its coin is at most this, by what it is
  uint64_t extra, extra_all;  // mass of the way back beyond 2^32: of one copy, and of all that there may be
};

// A step taken: the vertex, and the place of the edge in the lists. -1: the walk ended; no edge was followed.
template <typename P, typename N>
struct Move {
  N vertex;
  P place;
};

enum class Toss { kGo, kStop, kHome };
enum class Verdict { kAccept, kRefuse, kSearch };

LOADER_HD Toss toss(const WalkRules& rules, uint32_t coin) {
  return coin < rules.stop_below ? Toss::kStop : coin < rules.home_below ? Toss::kHome : Toss::kGo;
}

LOADER_HD Verdict judge(const WalkRules& rules, uint32_t coin, bool goes_back) {
  if (goes_back) return coin <= rules.back ? Verdict::kAccept : Verdict::kRefuse;
  if (coin <= rules.common && coin <= rules.far) return Verdict::kAccept;
  return coin <= rules.common || coin <= rules.far ? Verdict::kSearch : Verdict::kRefuse;
}

LOADER_HD bool accepts(const WalkRules& rules, uint32_t coin, bool is_common) {
  return coin <= (is_common ? rules.common : rules.far);
}

// All neighbours alike. A proposal has two halves, so that who has many walkers can let memory work between
// them: `aim` says where it looks, without reading, and `take` reads there.
struct UniformProposal {
  static constexpr int kWords = 1;
  static constexpr bool kFolds = true;  // of the second order, see above

  // `word` gives draw number i; `degree` > 0.
  template <typename P>
  LOADER_HD P aim(const Draws& draws, ListOf<P> list, uint32_t word, uint32_t i) const {
    return static_cast<P>(list.begin + draws.bounded(word, list.degree(), i));
  }
  template <class Lists>
  LOADER_HD void prefetch(const Lists& lists, typename Lists::Edge at) const {
#ifndef __CUDA_ARCH__
    __builtin_prefetch(lists.indices + at);
#endif
  }
  template <class Lists>
  LOADER_HD Move<typename Lists::Edge, typename Lists::Vertex> take(const Lists& lists,
                                                                    typename Lists::Edge at, uint32_t) const {
    return {lists.read(at), at};
  }
};

// Of the second order: a place in the mass of all neighbours, by the words of a proposal and of its verdict.
template <typename P>
struct Dart {
  P place;
  uint32_t coin;  // of the verdict
  int32_t copy;   // of the vertex before, in the part of its own; -1: elsewhere
};

template <typename P>
LOADER_HD Dart<P> throw_dart(const WalkRules& rules, const Draws& draws, ListOf<P> list, bool has_previous,
                             uint32_t low, uint32_t high, uint32_t i) {
  const uint64_t base = uint64_t{list.degree()} << 32;
  const uint64_t mass = base + (has_previous ? rules.extra_all : 0);
  const uint64_t at = draws.bounded_pair(low | uint64_t{high} << 32, mass, i);
  if (at < base) return {static_cast<P>(list.begin + (at >> 32)), static_cast<uint32_t>(at), -1};
  return {list.begin, 0, static_cast<int32_t>((at - base) / rules.extra)};
}

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

// A number uniform in [0, m), 0 < m <= 2^63, from the blocks with this index.
LOADER_HD uint64_t bounded_wide(const Draws& draws, uint64_t m, uint32_t index) {
  uint64_t low, high;
  uint32_t attempt = 0;
  do {
    const Words words = draws.block(index, attempt++);
    const uint64_t word = words.w[0] | uint64_t{words.w[1]} << 32;
#ifdef __CUDA_ARCH__
    high = __umul64hi(word, m);
#else
    high = static_cast<uint64_t>(static_cast<unsigned __int128>(word) * m >> 64);
#endif
    low = word * m;
  } while (low < m && low < (0 - m) % m);
  return high;
}

// The second-order step by a scan: the weights of all neighbours of the list, and one draw among their sum.
template <class Lists>
LOADER_HD Move<typename Lists::Edge, typename Lists::Vertex> scan_second_order(
    const WalkRules& rules, const Lists& lists, ListOf<typename Lists::Edge> list,
    ListOf<typename Lists::Edge> before, typename Lists::Vertex previous, const Draws& draws,
    uint32_t index) {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  const auto weight = [&](N x) -> uint64_t {
    if (x == previous) return uint64_t{rules.back} + 1 + rules.extra;
    if (rules.common == rules.far) return uint64_t{rules.far} + 1;
    return uint64_t{lists.holds(before, previous, x) ? rules.common : rules.far} + 1;
  };
  uint64_t sum = 0;
  for (P at = list.begin; at < list.end; ++at) sum += weight(lists.read(at));
  uint64_t left = bounded_wide(draws, sum, index);
  for (P at = list.begin;; ++at) {
    const N x = lists.read(at);
    const uint64_t own = weight(x);
    if (left < own) return {x, at};
    left -= own;
  }
}

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
    const ListOf<P> list = lists.list(walker.at, step);
    if (list.begin == list.end) return {N{-1}, P{-1}};
    const uint32_t at = first + Coin;
    Move<P, N> move;
    if constexpr (Second) {
      move = second_order(lists, walker, list, draws, j, at, block);
      walker.previous = walker.at;
      walker.before = list;
    } else {
      const P place = proposal.aim(draws, list, block.w[at], at);
      move = proposal.take(lists, place, block.w[(at + Proposal::kWords - 1) & 3]);
    }
    walker.at = move.vertex;
    return move;
  }

 private:
  template <class Lists>
  LOADER_HD Move<typename Lists::Edge, typename Lists::Vertex> second_order(
      const Lists& lists, const Walker<typename Lists::Edge, typename Lists::Vertex>& walker,
      ListOf<typename Lists::Edge> list, const Draws& draws, uint32_t j, uint32_t at,
      const Words& block) const {
    using P = typename Lists::Edge;
    using N = typename Lists::Vertex;
    const bool judged = walker.previous >= 0 && list.degree() > 1;
    uint32_t w[3] = {block.w[at], block.w[(at + 1) & 3], block.w[(at + 2) & 3]};
    uint32_t i = at;  // number of the first of these draws
    for (uint32_t attempt = 1;; ++attempt) {
      Verdict verdict = Verdict::kAccept;
      Move<P, N> move;
      uint32_t coin;
      int32_t copy = -1;
      if constexpr (Proposal::kFolds) {
        const Dart<P> dart = throw_dart(rules, draws, list, judged, w[0], w[1], i);
        coin = dart.coin;
        copy = dart.copy;
        if (copy < 0) {
          move = proposal.take(lists, dart.place, 0);
        } else {
          const P place = lists.find(list, walker.previous, static_cast<uint32_t>(copy));
          move = {walker.previous, place};
          if (place == list.end) verdict = Verdict::kRefuse;
        }
      } else {
        move = proposal.take(lists, proposal.aim(draws, list, w[0], i), w[1]);
        coin = w[2];
      }
      if (judged && copy < 0) verdict = judge(rules, coin, move.vertex == walker.previous);
      if (verdict == Verdict::kSearch)
        verdict = accepts(rules, coin, lists.holds(walker.before, walker.previous, move.vertex))
                      ? Verdict::kAccept
                      : Verdict::kRefuse;
      if (verdict == Verdict::kAccept) return move;
      if (Proposal::kFolds && attempt == kMaxTries)
        return scan_second_order(rules, lists, list, walker.before, walker.previous, draws, kScanBlock + j);
      i = Plan::again(j, attempt);
      const Words more = draws.block(i / 4);
      for (int k = 0; k < 3; ++k) w[k] = more.w[(i + k) & 3];
    }
  }
};

}  // namespace loader
