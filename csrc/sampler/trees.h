// Sampling in trees, each of which a seed has for itself: what it is, for CPU and GPU.
//
// Tree i belongs to seed i. A hop picks from the lists of the vertices that the hop before found.
//
//   unique  a vertex is in a tree once: the new ones of a hop are in the order (type, tree, id), and a row
//           draws by tree and vertex
//   paths   each pick is a vertex of its own: those of a hop are in the order (type, tree, order of the picks
//           within the tree), and a row draws by the vertex' number in its hop
//
// If there are times, a tree has a bound, and its rows see what lies within (graph/timed.h). In paths the
// bound may go with the walked edge instead.
#pragma once

#include <cstdint>

#include "graph/timed.h"
#include "sampler/choice.h"

namespace loader {

constexpr int kTreeShift = 40;  // of the tree in a lane: vertices are below 2^40, trees below 2^24
constexpr int64_t kMostTrees = int64_t{1} << 24;
constexpr int64_t kMostTreeVertices = int64_t{1} << kTreeShift;

// A list of a tree: draws by `number` at this hop.
struct TreeRow : HeteroRow {
  uint64_t number;
  LOADER_HD uint64_t lane() const { return number; }
};

LOADER_HD uint64_t tree_lane(int64_t tree, int64_t vertex) {
  return static_cast<uint64_t>(tree) << kTreeShift | static_cast<uint64_t>(vertex);
}

// How the time of a seed becomes a bound: the ranks of times are their places among all distinct ones.
struct SeedTimes {
  bool are_there = false;
  const int64_t* values = nullptr;  // [num_values] ascending
  int64_t num_values = 0;
  bool has_window = false;
  int64_t window = 0;  // what is as late as the seed's time minus this is not seen

  LOADER_HD int64_t since(int64_t time) const {
    constexpr int64_t kFirst = -0x7FFFFFFFFFFFFFFF - 1;
    return time < kFirst + window ? kFirst : time - window;
  }
};

// Which bound a picked vertex has.
struct BoundRule {
  bool of_edge = false;               // the walked edge's, else the seed's
  bool strict = false;                // of_edge: what is as late as the edge is not seen
  const int32_t* first_of = nullptr;  // of_edge with a window: Bound::first by rank of the edge

  LOADER_HD Bound after(Bound bound, int32_t rank) const {
    // Entries of rank -1 are earlier than everything, and always seen.
    const int32_t end = strict ? rank : rank + 1;
    return {first_of ? load(first_of + rank) : bound.first, end < 0 ? 0 : end};
  }
};

// The `fanout` latest of a list, at its end. Nothing is drawn.
struct LastChoice {
  static constexpr bool kCountsByDegree = true;

  LOADER_HD int64_t count(int64_t degree, int64_t fanout) const { return pick_count(degree, fanout, false); }
  LOADER_HD bool whole(int64_t degree, int64_t fanout) const { return picks_all(degree, fanout, false); }
};

}  // namespace loader
