// The edges among given vertices: an edge is found if its list is asked for and its source is given. What CPU
// and GPU have in common.
//
// Vertices may be given in several sets, and a list then finds only sources of its own set. The found edges
// come list by list as asked, each in the order of its list, so nothing depends on who finds them.
#pragma once

#include <cstdint>

#include "graph/lists.h"

namespace loader {

template <typename P, typename N>
struct InducedAsked {
  PlainLists<P, N> lists;
  int64_t num_ids;         // of sources: they are below it
  const N* nodes;          // [num_nodes], distinct within a set
  const int32_t* sets;     // [num_nodes], or null: all in one set
  const int64_t* rows;     // [num_rows], numbers of lists, or null: those of the nodes
  const int32_t* of_rows;  // [num_rows], sets of the lists, or null
  int64_t num_nodes, num_rows;
  int64_t num_sets;  // sets are below it

  // What stands for a vertex in a set: no two of them have the same.
  LOADER_HD uint64_t key(int32_t set, int64_t vertex) const {
    return static_cast<uint64_t>(set) * static_cast<uint64_t>(num_ids) + static_cast<uint64_t>(vertex);
  }
  LOADER_HD bool is_id(int64_t vertex) const { return vertex >= 0 && vertex < num_ids; }
  // Whether given vertex `i` is one, and its set, too.
  LOADER_HD bool is_given(int64_t i) const {
    return is_id(static_cast<int64_t>(nodes[i])) && (!sets || (sets[i] >= 0 && sets[i] < num_sets));
  }
  LOADER_HD int64_t row(int64_t i) const { return rows ? rows[i] : static_cast<int64_t>(nodes[i]); }
  LOADER_HD int32_t set_of_row(int64_t i) const {
    const int32_t* const all = rows ? of_rows : sets;
    return all ? all[i] : 0;
  }
};

// Where the place of a key is looked for in a table of 2^bits slots, 1 <= bits < 64; then in the slots that
// follow (Fibonacci hashing: Knuth, The Art of Computer Programming 3, section 6.4).
LOADER_HD uint64_t first_slot(uint64_t key, int bits) { return key * 0x9E3779B97F4A7C15u >> (64 - bits); }

constexpr uint64_t kFreeSlot = ~uint64_t{0};      // no key
constexpr uint64_t kMostKey = ~uint64_t{0} >> 1;  // keys are below it

// Bits of a table in which at most half of the slots are taken.
inline int table_bits(int64_t entries) {
  int bits = 6;
  while ((int64_t{1} << bits) < 2 * entries) ++bits;
  return bits;
}

}  // namespace loader
