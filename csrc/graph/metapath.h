// Lists of a graph whose vertices have several, one for each group of their edges, and walks along a path of
// groups.
#pragma once

#include "graph/lists.h"

namespace loader {

// The lists of a vertex lie one behind the other.
template <typename P, typename N>
struct SlottedLists {
  using Edge = P;
  using Vertex = N;
  using Row = SlotRow;

  const P* indptr;   // [num_nodes * slots + 1]
  const N* indices;  // [num_edges]
  int64_t slots;

  LOADER_HD ListOf<P> list(Row row) const {
    const P* const at = bounds(row);
    return {load(at), load(at + 1)};
  }
  LOADER_HD N read(P at) const { return load(indices + at); }
  LOADER_HD N read(P begin, uint32_t i) const { return load(indices + begin + i); }
  template <typename F>
  LOADER_HD void where(Row row, const F& f) const {
    f(bounds(row), int64_t{2});
  }
  template <typename F>
  LOADER_HD void where(P at, int64_t count, const F& f) const {
    f(indices + at, count);
  }

 private:
  LOADER_HD const P* bounds(Row row) const { return indptr + (row.vertex * slots + row.slot); }
};

constexpr int kMaxMetapath = 64;

// Only the edges of the type whose turn it is: a slot holds those of a type that is in the path.
template <typename P, typename N>
struct MetapathLists : SlottedLists<P, N> {
  uint32_t turns;              // the path's length; after its end it begins again
  uint8_t path[kMaxMetapath];  // the slot whose turn it is

  LOADER_HD SlotRow row(int64_t v, uint32_t step) const { return {v, path[step % turns]}; }
};

static_assert(is_lists<MetapathLists<int64_t, int32_t>>);

}  // namespace loader
