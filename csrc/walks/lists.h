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
