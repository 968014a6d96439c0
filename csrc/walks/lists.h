// The lists that walks follow. What walks is written for any `Lists`:
//
//   list(v, step)   the list that a walker on vertex v follows at this step, a ListOf<Edge>
//   read(at)        the neighbour at a place of a list
//   holds(list, t, v)  whether v is in `list`, which is that of vertex t
#pragma once

#include "graph/lists.h"
#include "walks/edge_filter.h"

namespace loader {

constexpr int kMaxMetapath = 64;

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

// A vertex' whole list at every step.
template <typename P, typename N>
struct WalkLists : PlainLists<P, N> {
  const N* sorted;    // [num_edges]: `indices` with each list in ascending order; nullptr if nobody searches
  EdgeFilter filter;  // of all edges, or none
  const uint8_t* copies;  // [num_nodes] see copies_log2; nullptr: no list has a vertex twice, or nobody asks

  LOADER_HD const P* bounds(int64_t v, uint32_t) const { return this->indptr + v; }
  LOADER_HD ListOf<P> list(int64_t v, uint32_t step) const {
    const P* const at = bounds(v, step);
    return {load(at), load(at + 1)};
  }
  LOADER_HD bool holds(ListOf<P> list, N t, N v) const {
    if (filter.words && !filter.passes(filter.mark(static_cast<uint64_t>(t), static_cast<uint64_t>(v))))
      return false;
    return is_among(sorted, list, v);
  }
  // No list has a vertex twice.
  LOADER_HD bool simple() const { return !copies; }
  // The list of v has no vertex more than 2^(this) times.
  LOADER_HD uint32_t copies_log2(int64_t v) const { return simple() ? 0 : load(copies + v); }
};

// Only the edges of the type whose turn it is. The edges of a vertex lie in groups, one for each type that is
// in the path.
template <typename P, typename N>
struct MetapathLists : PlainLists<P, N> {  // indptr [num_nodes * groups + 1]
  int64_t groups;
  uint32_t turns;              // the path's length; after its end it begins again
  uint8_t path[kMaxMetapath];  // the group whose turn it is

  LOADER_HD const P* bounds(int64_t v, uint32_t step) const {
    return this->indptr + (v * groups + path[step % turns]);
  }
  LOADER_HD ListOf<P> list(int64_t v, uint32_t step) const {
    const P* const at = bounds(v, step);
    return {load(at), load(at + 1)};
  }
};

}  // namespace loader
