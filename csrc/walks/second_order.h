// node2vec's second order (Grover and Leskovec, KDD 2016): from t, the vertex before, over v to x with a
// probability in proportion to 1/p if x is t, 1 if x is listed at t, and 1/q otherwise.
//
// By rejection: every entry of v's list has a mass of 2^32, the larger of 1 and 1/q, of which as much is
// accepted as its weight says. Whether x is listed at t is searched only if the coin lies between the two
// thresholds that this decides between. All masses are integers, and the law is exact for weights rounded to
// them. What rejection would take long for is taken out of it:
//
//   the way back   In a list that has a vertex often (2^kManyCopies times, or nearly so), the places of the
//   one
//                  that it has most often are known. If that is t, tries draw among the copies of t and all
//                  others at once, and need no luck to meet either of them.
//                  Else, if 1/p is larger than the mass of an entry, each copy of t in the list has `extra`
//                  mass on top, in a part of its own (as KnightKing folds it: Yang et al., SOSP 2019). The
//                  part is as large as for the most copies that t may have, which are sought only if a try
//                  falls upon it: a try that falls upon a copy that is not there is refused, and the tries
//                  after it know how many there are.
//                  If 1/p is less, and try kPatience or a later one is refused because it fell upon t, the
//                  copies are sought, too.
//   the others     Of tries among these as many are expected as 1 and 1/q differ. If that is more than
//                  kFewTries and more than the list has entries, it is scanned after as many refusals
//                  (kMaxTries at least, kManyTries at most): the weights of all entries, and one draw among
//                  their sum. On a GPU the threads of a warp scan it together.
//
// So a step takes tries by the ratio of 1 and 1/q, or by the length of a list if that is less and the ratio
// is no small one, whatever p and the copies are.
//
// Steps by weight have no such parts: of the three weights the largest is accepted always.
#pragma once

#include <cstdint>

#include "walks/walk.h"

namespace loader {

constexpr uint32_t kFewTries = 16;                     // expected ones that no list is scanned for
constexpr uint32_t kMaxTries = 64, kManyTries = 1024;  // before the scan of a short list, and of a long one
constexpr uint32_t kManyCopies = 3;  // as a power of two: fewer are not worth to look which vertex it is
constexpr uint32_t kPatience = 8;  // tries before one that is refused because it fell upon a copy seeks them
constexpr uint32_t kMostTries = 1u << 24;              // before a scan in any case, by rules that scan
constexpr uint64_t kMostReserved = uint64_t{1} << 62;  // mass of the way back, before its copies are known
// Indices of Philox blocks: of tries that know the copies, of redraws of a copy, of a scan. Other tries have
// lower ones.
constexpr uint32_t kKnowingBlock = 1u << 29, kCopyBlock = 1u << 30, kScanBlock = 1u << 31;
constexpr int32_t kNoCopy = -1, kAllCopies = INT32_MAX;

enum class Verdict { kAccept, kRefuse, kSearch };

LOADER_HD Verdict judge(const WalkRules& rules, uint32_t coin, bool goes_back) {
  if (goes_back) return coin <= rules.back ? Verdict::kAccept : Verdict::kRefuse;
  if (coin <= rules.common && coin <= rules.far) return Verdict::kAccept;
  return coin <= rules.common || coin <= rules.far ? Verdict::kSearch : Verdict::kRefuse;
}

LOADER_HD bool accepts(const WalkRules& rules, uint32_t coin, bool is_common) {
  return coin <= (is_common ? rules.common : rules.far);
}

// Whether these rules ask for the copies of the vertex before: they refuse it at times, or prefer it.
LOADER_HD bool asks_for_copies(const WalkRules& rules) { return rules.extra || rules.back != UINT32_MAX; }

// The exponent of the smallest power of two that is at least `copies`.
LOADER_HD uint32_t log2_of(uint32_t copies) {
  uint32_t exponent = 0;
  while (uint64_t{1} << exponent < copies) ++exponent;
  return exponent;
}

// Whether the extra mass of 2^`copies_log2` copies can be reserved. If not, they are sought before a try.
LOADER_HD bool reserves(const WalkRules& rules, uint32_t copies_log2) {
  return rules.extra <= kMostReserved >> copies_log2;
}

// The share of the rarer one of 1 and 1/q. Thresholds are out of 2^32, which the higher one of them is.
LOADER_HD uint64_t least_of(const WalkRules& rules) {
  return uint64_t{rules.common < rules.far ? rules.common : rules.far} + 1;
}

// Whether these rules ever scan a list.
LOADER_HD bool scans(const WalkRules& rules) { return least_of(rules) * kFewTries < uint64_t{1} << 32; }

// Whether tries are all that walks take: there are no scans, and of copies of the vertex before it is at most
// to be known whether there is one.
template <class Lists>
LOADER_HD bool only_tries(const WalkRules& rules, const Lists& lists) {
  return lists.simple() && reserves(rules, 0) && !scans(rules);
}

// Refusals after which a list is scanned.
LOADER_HD uint32_t tries_of(const WalkRules& rules, uint32_t degree) {
  if (!scans(rules)) return UINT32_MAX;
  if (least_of(rules) * degree >= uint64_t{1} << 32) return kMostTries;
  return degree < kMaxTries ? kMaxTries : degree < kManyTries ? degree : kManyTries;
}

// A place in the mass of a list.
template <typename P>
struct Dart {
  P place;
  uint32_t coin;  // of the verdict
  int32_t copy;   // of the vertex before, which are still to be sought; kNoCopy: elsewhere
};

// Of a try that does not know the copies, by the words of a proposal and of its verdict.
template <typename P>
LOADER_HD Dart<P> throw_dart(const WalkRules& rules, const Draws& draws, ListOf<P> list, uint64_t reserved,
                             uint32_t low, uint32_t high, uint32_t i) {
  const uint64_t base = uint64_t{list.degree()} << 32;
  const uint64_t at = draws.bounded_pair(low | uint64_t{high} << 32, base + reserved, i);
  if (at < base) return {static_cast<P>(list.begin + (at >> 32)), static_cast<uint32_t>(at), kNoCopy};
  return {list.begin, 0, static_cast<int32_t>((at - base) / rules.extra)};
}

// A place in the mass of the others, or a copy of the vertex before.
struct Share {
  uint64_t at;
  int32_t copy;
};

// A draw among `others`, a mass below 2^63, and `copies` of the vertex before, by the block with this index.
// If both together are more than 64 bits tell, two words tell the unit of 2^32 and the third the place in it;
// the last unit is not a whole one, and what falls behind its end is drawn again.
LOADER_HD Share share_out(const WalkRules& rules, const Draws& draws, uint64_t others, uint32_t copies,
                          uint32_t index, Words words) {
  const uint64_t each = rules.extra + rules.back + 1;
  const uint64_t low = each * copies + others;
  const uint64_t high = multiply_high(each, copies) + (low < others);
  const bool fits = high == 0;
  const uint64_t rest = fits ? 0 : low & 0xffffffffu;
  const uint64_t units = fits ? low : (high << 32 | low >> 32) + (rest > 0);
  for (uint32_t attempt = 1;; words = draws.block(index, attempt++)) {
    const uint64_t word = Draws::pair_of(words, 0);
    if (word * units < units && word * units < (0 - units) % units) continue;
    const uint64_t unit = multiply_high(word, units);
    if (rest > 0 && unit == units - 1 && words.w[2] >= rest) continue;
    const bool is_other =
        fits ? unit < others
             : unit < others >> 32 || (unit == others >> 32 && words.w[2] < static_cast<uint32_t>(others));
    if (is_other) return {fits ? unit : unit << 32 | words.w[2], kNoCopy};
    return {0, static_cast<int32_t>(draws.bounded(words.w[3], copies, kCopyBlock + index))};
  }
}

// Index of the block of a try that knows the copies, in the step that is number j of its `share`.
LOADER_HD uint32_t knowing_block(uint32_t share, uint32_t j, uint32_t attempt) {
  return kKnowingBlock + j + share * attempt;
}

// Of a try that knows the copies, places `own` of the list; `words` are the block with this index. A copy is
// accepted, since its coin is 0.
template <typename P>
LOADER_HD Dart<P> throw_knowing(const WalkRules& rules, const Draws& draws, ListOf<P> list, ListOf<P> own,
                                uint32_t index, const Words& words) {
  const uint64_t others = uint64_t{list.degree() - own.degree()} << 32;
  const Share share = share_out(rules, draws, others, own.degree(), index, words);
  if (share.copy >= 0) return {static_cast<P>(own.begin + share.copy), 0, kNoCopy};
  P place = static_cast<P>(list.begin + (share.at >> 32));
  if (place >= own.begin) place += own.end - own.begin;
  return {place, static_cast<uint32_t>(share.at), kNoCopy};
}

// The mass of an entry of a list, of another vertex than the one before.
template <class Lists>
LOADER_HD uint64_t mass_of(const WalkRules& rules, const Lists& lists, ListOf<typename Lists::Edge> before,
                           typename Lists::Vertex previous, typename Lists::Vertex x) {
  if (rules.common == rules.far) return uint64_t{rules.far} + 1;
  return uint64_t{lists.holds(before, previous, x) ? rules.common : rules.far} + 1;
}

// A step by a scan of the list.
template <class Lists>
LOADER_HD Move<typename Lists::Edge, typename Lists::Vertex> scan_second_order(
    const WalkRules& rules, const Lists& lists, ListOf<typename Lists::Edge> list,
    ListOf<typename Lists::Edge> before, typename Lists::Vertex previous, const Draws& draws, uint32_t j) {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  uint64_t others = 0;
  ListOf<P> own{list.end, list.end};  // copies of the vertex before lie side by side
  for (P at = list.begin; at < list.end; ++at) {
    const N x = lists.read(at);
    if (x != previous)
      others += mass_of(rules, lists, before, previous, x);
    else
      own = {own.begin < at ? own.begin : at, static_cast<P>(at + 1)};
  }
  const uint32_t index = kScanBlock + j;
  const Share share = share_out(rules, draws, others, own.degree(), index, draws.block(index));
  if (share.copy >= 0) return {previous, static_cast<P>(own.begin + share.copy)};
  uint64_t left = share.at;
  for (P at = list.begin;; ++at) {
    const N x = lists.read(at);
    if (x == previous) continue;
    const uint64_t mass = mass_of(rules, lists, before, previous, x);
    if (left < mass) return {x, at};
    left -= mass;
  }
}

}  // namespace loader
