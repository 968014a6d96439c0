// Lists of a graph with several types of vertices and edges: a vertex has one for each relation into its
// type.
#pragma once

#include "graph/lists.h"

namespace loader {

constexpr int kMaxTypes = 64;

// A list of a vertex, and where its bounds lie.
struct HeteroRow {
  int64_t vertex;
  int64_t at;         // number of the list among all
  uint32_t slot;      // number of the relation among those into the type
  uint32_t relation;  // its number among all, type after type
  LOADER_HD uint64_t lane() const { return static_cast<uint64_t>(vertex); }
};

// The vertices of a type are a range of ids, and its lists follow each other: vertex after vertex, of each
// relation after relation.
struct VertexType {
  int64_t first;           // vertex
  int64_t first_list;      // of that vertex
  int32_t first_relation;  // into the type, see HeteroRow::relation
  int32_t relations;       // into the type

  LOADER_HD HeteroRow row(int64_t v, uint32_t slot) const {
    return {v, first_list + (v - first) * relations + slot, slot,
            static_cast<uint32_t>(first_relation) + slot};
  }
};

template <typename P, typename N>
struct HeteroLists {
  using Edge = P;
  using Vertex = N;
  using Row = HeteroRow;

  const P* indptr;   // [lists + 1]
  const N* indices;  // [num_edges]
  int num_types;
  VertexType types[kMaxTypes];

  LOADER_HD ListOf<P> list(const Row& row) const {
    return {load(indptr + row.at), load(indptr + row.at + 1)};
  }
  LOADER_HD N read(P at) const { return load(indices + at); }
  LOADER_HD N read(P begin, uint32_t i) const { return load(indices + begin + i); }
  template <typename F>
  LOADER_HD void where(const Row& row, const F& f) const {
    f(indptr + row.at, int64_t{2});
  }
  template <typename F>
  LOADER_HD void where(P at, int64_t count, const F& f) const {
    f(indices + at, count);
  }

  // The type of a vertex.
  LOADER_HD int type_of(int64_t v) const {
    int type = 0, end = num_types;  // it is in [type, end)
    while (end - type > 1) {
      const int middle = (type + end) / 2;
      if (types[middle].first <= v)
        type = middle;
      else
        end = middle;
    }
    return type;
  }
};

template <typename P, typename N>
const N* neighbors(const HeteroLists<P, N>& lists, P at, int64_t /*count*/, N* /*room*/) {
  return lists.indices + at;
}

static_assert(is_lists<HeteroLists<int32_t, int32_t>>);

// Calls f(row) for each list of a vertex.
template <typename Lists, typename F>
void for_each_row(const Lists& lists, int64_t v, const F& f) {
  if constexpr (std::is_same_v<typename Lists::Row, HeteroRow>) {
    const VertexType& type = lists.types[lists.type_of(v)];
    for (int32_t slot = 0; slot < type.relations; ++slot) f(type.row(v, static_cast<uint32_t>(slot)));
  } else {
    f(typename Lists::Row{v});
  }
}

}  // namespace loader
