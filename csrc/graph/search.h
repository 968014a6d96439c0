// Lists that are searched: for whether a vertex is in one, and for how often.
#pragma once

#include "graph/edge_filter.h"
#include "graph/lists.h"

namespace loader {

// A binary search: the entry that it looks at next, and the half that is left after that.
template <typename P>
LOADER_HD P middle(ListOf<P> list) {
  return list.begin + (list.end - list.begin) / 2;
}
template <typename P>
LOADER_HD void halve(ListOf<P>& list, bool upper) {
  const P at = middle(list);
  if (upper)
    list.begin = at + 1;
  else
    list.end = at;
}

// Whether v is among the ascending entries of the list.
template <typename P, typename N>
LOADER_HD bool is_among(const N* sorted, ListOf<P> list, N v) {
  while (list.begin < list.end) {
    const N there = load(sorted + middle(list));
    if (there == v) return true;
    halve(list, there < v);
  }
  return false;
}

// The first place of an entry that is not below v, or the end.
template <typename P, typename N>
LOADER_HD P lower_bound(const N* sorted, ListOf<P> list, N v) {
  while (list.begin < list.end) halve(list, load(sorted + middle(list)) < v);
  return list.begin;
}

// The first place of an entry above v, or the end.
template <typename P, typename N>
LOADER_HD P upper_bound(const N* sorted, ListOf<P> list, N v) {
  while (list.begin < list.end) halve(list, load(sorted + middle(list)) <= v);
  return list.begin;
}

// The lists that walks follow, a vertex' whole one at every step. Beside what is_lists asks:
//
//   row(v, step)       whose list a walker on vertex v follows at this step
//   holds(list, t, v)  whether v is in `list`, which is that of vertex t
template <typename P, typename N>
struct WalkLists : PlainLists<P, N> {
  const N* sorted;    // [num_edges]: `indices` with each list in ascending order; nullptr if nobody searches
  EdgeFilter filter;  // of all edges, or none
  const uint8_t* copies;  // [num_nodes] see copies_log2; nullptr: no list has a vertex twice, or nobody asks
  // [num_nodes, 3] for each list, the first place of the vertex that it has most often, how often it has it,
  // and how often any other at most.
  const P* most;

  LOADER_HD VertexRow row(int64_t v, uint32_t /*step*/) const { return {v}; }
  LOADER_HD bool holds(ListOf<P> list, N t, N v) const {
    if (filter.words && !filter.passes(filter.mark(static_cast<uint64_t>(t), static_cast<uint64_t>(v))))
      return false;
    return is_among(sorted, list, v);
  }
  // No list has a vertex twice.
  LOADER_HD bool simple() const { return !copies; }
  // The list of v has no vertex more than 2^(this) times.
  LOADER_HD uint32_t copies_log2(int64_t v) const { return simple() ? 0 : load(copies + v); }
  // The places of the vertex that the list of v has most often.
  LOADER_HD ListOf<P> most_often(int64_t v) const {
    const P begin = load(most + 3 * v);
    return {begin, static_cast<P>(begin + load(most + 3 * v + 1))};
  }
  // How often it has any other vertex at most.
  LOADER_HD uint32_t others_often(int64_t v) const { return static_cast<uint32_t>(load(most + 3 * v + 2)); }
};

static_assert(is_lists<WalkLists<int64_t, int32_t>>);

}  // namespace loader
