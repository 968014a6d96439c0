// How whoever samples, walks or traverses reads a graph. All of it is written for any `Lists`, a small struct
// of numbers and pointers that kernels take by value:
//
//   Edge, Vertex         types of places in the lists (and of edge ids), and of vertices
//   Row                  what has a list: VertexRow, or SlotRow where a vertex has several
//   list(row)            its list, a ListOf<Edge>
//   read(at)             the neighbor at a place of a list
//   read(begin, i)       the neighbor `i` places behind `begin`: where several of one list are read, its
//                        address is worked out once
//   where(row, f)        calls f(address, count) with the words in memory that `list(row)` reads
//   where(at, count, f)  the same of `count` neighbors from a place on
//
// These only load, so a caller asks for several before it looks at the first. A kind of lists is a header of
// its own; `is_lists` checks it while it is compiled.
#pragma once

#include <cstdint>
#include <type_traits>

#include "host_device.h"

namespace loader {

// A list of neighbors: places [begin, end).
template <typename P>
struct ListOf {
  P begin, end;
  LOADER_HD uint32_t degree() const { return static_cast<uint32_t>(end - begin); }  // of the GPU: below 2^32
};

// What has a list, where a vertex has one.
struct VertexRow {
  static constexpr uint32_t slot = 0;

  int64_t vertex;
  LOADER_HD uint64_t lane() const { return static_cast<uint64_t>(vertex); }  // of its draws
};

// The same where it has one for each of several slots, one per edge type, say.
struct SlotRow {
  int64_t vertex;
  uint32_t slot;
  LOADER_HD uint64_t lane() const { return static_cast<uint64_t>(vertex); }
};

// All lists one behind the other, in one memory that whoever reads them can read.
template <typename P, typename N>
struct PlainLists {
  using Edge = P;
  using Vertex = N;
  using Row = VertexRow;

  const P* indptr;   // [num_nodes + 1]
  const N* indices;  // [num_edges]

  LOADER_HD ListOf<P> list(Row row) const {
    return {load(indptr + row.vertex), load(indptr + row.vertex + 1)};
  }
  LOADER_HD N read(P at) const { return load(indices + at); }
  LOADER_HD N read(P begin, uint32_t i) const { return load(indices + begin + i); }
  template <typename F>
  LOADER_HD void where(Row row, const F& f) const {
    f(indptr + row.vertex, int64_t{2});
  }
  template <typename F>
  LOADER_HD void where(P at, int64_t count, const F& f) const {
    f(indices + at, count);
  }
};

// A graph: its lists, and how many vertices there are.
template <typename ListsOf>
struct GraphOf {
  using Lists = ListsOf;

  Lists lists;
  int64_t num_nodes;
};

template <typename P, typename N>
using PlainGraph = GraphOf<PlainLists<P, N>>;

// Asks memory for what `list(row)` reads, and `read(at)`.
template <typename Lists>
LOADER_HD void prefetch_list(const Lists& lists, typename Lists::Row row) {
  lists.where(row, [](const auto* at, int64_t) { prefetch(at); });
}
template <typename Lists>
LOADER_HD void prefetch_entry(const Lists& lists, typename Lists::Edge at) {
  lists.where(at, int64_t{1}, [](const auto* entry, int64_t) { prefetch(entry); });
}

// Of lists that lie one behind the other, in the order of the vertices: the entries of all of them, and the
// vertex whose list has a place.
template <typename Lists>
LOADER_HD int64_t count_entries(const Lists& lists, int64_t num_nodes) {
  return num_nodes > 0 ? static_cast<int64_t>(lists.list({num_nodes - 1}).end) : 0;
}
template <typename Lists>
LOADER_HD int64_t vertex_at(const Lists& lists, int64_t num_nodes, int64_t at) {
  int64_t v = 0, end = num_nodes;  // it is in [v, end)
  while (end - v > 1) {
    const int64_t middle = v + (end - v) / 2;
    if (lists.list({middle}).begin <= at)
      v = middle;
    else
      end = middle;
  }
  return v;
}

// `count` neighbors from a place on, side by side: where they lie, else in `room`.
template <typename Lists>
const typename Lists::Vertex* neighbors(const Lists& lists, typename Lists::Edge at, int64_t count,
                                        typename Lists::Vertex* room) {
  for (int64_t i = 0; i < count; ++i) room[i] = lists.read(static_cast<typename Lists::Edge>(at + i));
  return room;
}
template <typename P, typename N>
const N* neighbors(const PlainLists<P, N>& lists, P at, int64_t /*count*/, N* /*room*/) {
  return lists.indices + at;
}

namespace of_lists {

struct NoReport {
  template <typename T>
  LOADER_HD void operator()(const T*, int64_t) const {}
};

template <typename T>
const T& some();  // for the types of what is done with it

template <typename L, typename P = typename L::Edge, typename N = typename L::Vertex,
          typename Row = typename L::Row>
constexpr auto check(const L* lists) -> decltype(lists->where(some<Row>(), NoReport()),
                                                 lists->where(some<P>(), int64_t{1}, NoReport()),
                                                 some<Row>().lane() + some<Row>().slot, some<Row>().vertex,
                                                 true) {
  return std::is_same_v<decltype(lists->list(some<Row>())), ListOf<P>> &&
         std::is_same_v<decltype(lists->read(some<P>())), N> &&
         std::is_same_v<decltype(lists->read(some<P>(), uint32_t{1})), N>;
}
constexpr bool check(const void*) { return false; }

}  // namespace of_lists

template <typename L>
constexpr bool is_lists = of_lists::check(static_cast<const L*>(nullptr));

static_assert(is_lists<PlainLists<int32_t, int32_t>> && !is_lists<ListOf<int32_t>>);

}  // namespace loader
