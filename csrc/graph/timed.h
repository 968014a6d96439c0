// Lists by vertex and relation (hetero.h) whose entries have times: a row sees a range of its list.
#pragma once

#include "graph/hetero.h"

namespace loader {

// What a tree sees of its lists: entries whose times have ranks `first` <= rank < `end`. Ranks count from 0,
// so a `first` of 0 leaves nothing out.
struct Bound {
  int32_t first, end;
};

template <typename P, typename N>
struct TimedLists : HeteroLists<P, N> {
  using Edge = P;
  using Vertex = N;
  using Row = HeteroRow;

  static constexpr P kApart = 32;  // of coarse ranks: a line of 128 bytes

  const int32_t* ranks;    // [num_edges], ascending in each list; null: nothing has a time
  const int32_t* coarse;   // [(num_edges + 31) / 32] the rank of entry 0, 32, 64, ...
  const uint32_t* always;  // bit r: nothing of relation r has a time, and all of it is visible

  using HeteroLists<P, N>::list;

  LOADER_HD bool has_times(uint32_t relation) const {
    return ranks && !(load(always + relation / 32) >> relation % 32 & 1);
  }

  // What a row sees: places [begin, end) of its list.
  LOADER_HD ListOf<P> list(const Row& row, Bound bound) const {
    ListOf<P> seen = list(row);
    if (seen.begin == seen.end || !has_times(row.relation)) return seen;
    seen.end = first_from(bound.end, seen);
    if (bound.first > 0) seen.begin = first_from(bound.first, seen);
    return seen;
  }

  // The first place of a list whose rank is `rank` or more, or its end. Of long lists the coarse ranks are
  // searched first: they stay in the L2 cache, and what is left is a line of 128 bytes.
  LOADER_HD P first_from(int32_t rank, const ListOf<P>& list) const {
    P begin = list.begin, end = list.end;  // it is in [begin, end]
    if (end - begin > 2 * kApart) {
      const P first = (begin + kApart - 1) / kApart, last = (end - 1) / kApart + 1;
      const P at = first_of(coarse, first, last, rank);
      begin = at > first ? (at - 1) * kApart + 1 : begin;
      end = at < last ? at * kApart : end;
    }
    return first_of(ranks, begin, end, rank);
  }

 private:
  // As first_from, of entries [begin, end) of an ascending array. Three looks at once are half as many that
  // wait for one another, and the last few entries are all looked at.
  LOADER_HD static P first_of(const int32_t* at, P begin, P end, int32_t rank) {
    constexpr P kFew = 7;
    while (end - begin > kFew) {
      const P part = (end - begin) / 4, first = begin + part, second = first + part, third = second + part;
      const bool after_first = load(at + first) < rank, after_second = load(at + second) < rank,
                 after_third = load(at + third) < rank;
      begin = after_third ? third + 1 : after_second ? second + 1 : after_first ? first + 1 : begin;
      end = after_third ? end : after_second ? third : after_first ? second : first;
    }
    const P left = end - begin;
    P before = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (P i = 0; i < kFew; ++i) before += i < left && load(at + begin + i) < rank;
    return begin + before;
  }
};

static_assert(is_lists<TimedLists<int32_t, int32_t>>);

}  // namespace loader
