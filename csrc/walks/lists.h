// The lists that walks follow. What walks is written for any `Lists`:
//
//   list(v, step)   the list that a walker on vertex v follows at this step, a ListOf<Edge>
//   read(at)        the neighbour at a place of a list
//   holds(list, t, v)  whether v is in `list`, which is that of vertex t
#pragma once

#include "sampler/lists.h"
#include "walks/edge_filter.h"

namespace loader {

constexpr int kMaxMetapath = 64;

// Whether v is among the ascending entries of the list.
template <typename P, typename N>
LOADER_HD bool is_among(const N* sorted, ListOf<P> list, N v) {
  P begin = list.begin, end = list.end;
  while (begin < end) {
    const P middle = begin + (end - begin) / 2;
    const N there = load(sorted + middle);
    if (there == v) return true;
    if (there < v)
      begin = middle + 1;
    else
      end = middle;
  }
  return false;
}

// The first place of an entry that is not below v, or the end.
template <typename P, typename N>
LOADER_HD P lower_bound(const N* sorted, ListOf<P> list, N v) {
  P begin = list.begin, end = list.end;
  while (begin < end) {
    const P middle = begin + (end - begin) / 2;
    if (load(sorted + middle) < v)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

// A vertex' whole list at every step.
template <typename P, typename N>
struct WalkLists : PlainLists<P, N> {
  const N* sorted;    // [num_edges]: `indices` with each list in ascending order; nullptr if nobody searches
  EdgeFilter filter;  // of all edges, or none

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
  // The lists lie in ascending order as they are.
  LOADER_HD bool ascending() const { return sorted == this->indices; }
  // The place of copy number `copy` of v in the list, or the end of the list if v has fewer copies there. If
  // the list is not in ascending order, all its entries are looked at.
  LOADER_HD P find(ListOf<P> list, N v, uint32_t copy) const {
    if (ascending()) return copy_at(list, v, lower_bound(sorted, list, v), copy);
    P at = list.begin;
    for (; at < list.end; ++at)
      if (this->read(at) == v && copy-- == 0) break;
    return at;
  }
  // The same where the first one would be at `first`.
  LOADER_HD P copy_at(ListOf<P> list, N v, P first, uint32_t copy) const {
    return static_cast<uint64_t>(list.end - first) > copy && this->read(first + copy) == v
               ? static_cast<P>(first + copy)
               : list.end;
  }
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
