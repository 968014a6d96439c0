// Negative links, written once for host and device: a pure function of (key, lane).
//
// The key is that of the mini-batch for Purpose::kNegative, the lane the number of the negative in the
// mini-batch. Try t has two Philox blocks: 2t gives the source, 2t + 1 the target.
#pragma once

#include <cstdint>

#include "graph/search.h"
#include "sampler/pick.h"

namespace loader {

// At most this many tries are made for a strict negative. If all tries for a given source fail, one of the
// targets that are possible is chosen by its rank, so that all of them stay equally likely.
constexpr uint32_t kTriesOfTarget = 64;
constexpr uint32_t kTriesOfPair = 4096;

// The nodes that links may join, numbered within their types: from 0 to below these numbers. What is drawn is
// the number of a node.
struct EndCounts {
  uint32_t sources, targets;
  bool one_type;  // of both ends: equal numbers are a loop

  LOADER_HD int64_t source(int64_t drawn) const { return drawn; }
  LOADER_HD int64_t target(int64_t drawn) const { return drawn; }
  LOADER_HD bool is_loop(int64_t source, int64_t target) const { return one_type && source == target; }
};

// The edges that a strict negative must not be: lists of sources by target, each ascending.
template <typename P, typename N>
struct KnownEdges {
  PlainLists<P, N> lists;  // null pointers: none

  LOADER_HD bool any() const { return lists.indptr; }
  LOADER_HD bool has(int64_t source, int64_t target) const {
    if (!any()) return false;
    ListOf<P> list = lists.list({target});
    while (list.begin < list.end) {
      const auto there = static_cast<int64_t>(lists.read(middle(list)));
      if (there == source) return true;
      halve(list, there < source);
    }
    return false;
  }
};

// An end of the pair of try `attempt`, uniform in [0, count).
LOADER_HD int64_t drawn_end(const Draws& draws, uint32_t count, uint32_t attempt, bool target) {
  const uint32_t index = 2 * attempt + (target ? 1 : 0);
  return draws.bounded(draws.block(index).w[0], count, index);
}

// Draws both ends of a negative link. Returns false if all tries were known edges or loops. Without `strict`
// it takes the first try, also if that is an edge or a loop.
template <class Counts, class Known>
LOADER_HD bool negative_pair(const Draws& draws, const Counts& counts, bool strict, const Known& known,
                             int64_t* source, int64_t* target) {
  for (uint32_t t = 0; t < kTriesOfPair; ++t) {
    *source = counts.source(drawn_end(draws, counts.sources, t, false));
    *target = counts.target(drawn_end(draws, counts.targets, t, true));
    if (!strict || (!counts.is_loop(*source, *target) && !known.has(*source, *target))) return true;
  }
  return false;
}

// The target of a negative link from `source`, or -1 if every node is one of its targets.
template <class Counts, class Known>
LOADER_HD int64_t negative_target(const Draws& draws, const Counts& counts, bool strict, const Known& known,
                                  int64_t source) {
  for (uint32_t t = 0; t < kTriesOfTarget; ++t) {
    const int64_t target = counts.target(drawn_end(draws, counts.targets, t, true));
    if (!strict || (!counts.is_loop(source, target) && !known.has(source, target))) return target;
  }
  const auto is_free = [&](int64_t v) { return !counts.is_loop(source, v) && !known.has(source, v); };
  uint32_t free = 0;
  for (int64_t v = 0; v < static_cast<int64_t>(counts.targets); ++v) free += is_free(counts.target(v));
  if (free == 0) return -1;
  int64_t rank = drawn_end(draws, free, kTriesOfTarget, true);
  for (int64_t v = 0;; ++v)
    if (is_free(counts.target(v)) && rank-- == 0) return counts.target(v);
}

}  // namespace loader
