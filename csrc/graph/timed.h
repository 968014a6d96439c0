// Lists by vertex and relation (typed.h) whose entries have times: a row sees a range of its list.
#pragma once

#include "graph/typed.h"

namespace loader {

// What a tree sees of its lists: entries whose times have ranks `first` <= rank < `end`. Ranks count from 0,
// so a `first` of 0 leaves nothing out.
struct Bound {
  int32_t first, end;
};

template <typename P, typename N>
struct TimedLists : TypedLists<P, N> {
  using Edge = P;
  using Vertex = N;
  using Row = TypedRow;

  const int32_t* ranks;    // [num_edges], ascending in each list; null: nothing has a time
  const uint32_t* always;  // bit r: nothing of relation r has a time, and all of it is visible

  using TypedLists<P, N>::list;

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

  // The first place of a list whose rank is `rank` or more, or its end.
  LOADER_HD P first_from(int32_t rank, const ListOf<P>& list) const {
    P begin = list.begin, end = list.end;                           // it is in [begin, end]
    if (begin < end && load(ranks + (end - 1)) < rank) return end;  // of most lists: they are older
    while (end - begin > 3) {  // three looks at once: half as many that wait for one another
      const P part = (end - begin) / 4, first = begin + part, second = first + part, third = second + part;
      const bool after_first = load(ranks + first) < rank, after_second = load(ranks + second) < rank,
                 after_third = load(ranks + third) < rank;
      begin = after_third ? third + 1 : after_second ? second + 1 : after_first ? first + 1 : begin;
      end = after_third ? end : after_second ? third : after_first ? second : first;
    }
    while (begin < end) {
      const P middle = begin + (end - begin) / 2;
      if (load(ranks + middle) < rank)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin;
  }
};

static_assert(is_lists<TimedLists<int32_t, int32_t>>);

}  // namespace loader
