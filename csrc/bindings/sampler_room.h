// The sizes of the arrays of the GPU samplers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "bindings/views.h"

namespace loader {

// Entries of the arrays that a plan needs, for each mini-batch of a launch.
struct Room {
  int64_t rows = 0, picks = 0;
  int64_t bitmaps = 0, vertices = 0;  // of bitmaps: their words, and local ids
  int64_t table = 0, found = 0;       // of a hash set: its places, and the vertices that it has room for
  int64_t places = 0;                 // picks of a hop, if lists are read by the line
  // Of a launch, whatever its mini-batches:
  int64_t line_words = 0, lines = 0;

  void grow_to(const Room& other) {
    rows = std::max(rows, other.rows);
    picks = std::max(picks, other.picks);
    bitmaps = std::max(bitmaps, other.bitmaps);
    vertices = std::max(vertices, other.vertices);
    table = std::max(table, other.table);
    found = std::max(found, other.found);
    places = std::max(places, other.places);
    line_words = std::max(line_words, other.line_words);
    lines = std::max(lines, other.lines);
  }
};

// Where the arrays of a mini-batch lie in its memory, see Engine::plan, and the most entries that they have.
struct OutputPlan {
  int64_t nodes;                      // within all hops
  const std::vector<int64_t>& edges;  // of each hop
  const int64_t* lists;               // of each hop: those that it picks from
  const std::vector<int64_t>&indices_at, &indptr_at, &edge_ids_at;
  int64_t edges_at;
};

// The bytes of that memory, of places P and vertices N.
template <typename P, typename N>
int64_t output_bytes(const OutputPlan& plan) {
  using Wide = __int128;  // capacities may be any numbers
  constexpr Wide kNode = sizeof(N), kEdge = sizeof(P);
  Wide most = kNode * plan.nodes;
  const auto room = [&most](Wide end, Wide at, Wide entries) {
    if (at < 0 || entries < 0)
      throw py::value_error("an offset is " + std::to_string(static_cast<int64_t>(at)) + " and a capacity " +
                            std::to_string(static_cast<int64_t>(entries)) + "; both must be at least 0");
    most = std::max(most, end);
  };
  room(most, plan.edges_at, plan.nodes);
  for (size_t h = 0; h < plan.edges.size(); ++h) {
    const Wide edges = plan.edges[h], lists = plan.lists[h];
    room(kNode * (plan.indices_at[h] + edges), plan.indices_at[h], edges);
    room(plan.edges_at + kEdge * (plan.indptr_at[h] + lists + 1), plan.indptr_at[h], lists);
    if (plan.edge_ids_at.empty()) continue;
    room(plan.edges_at + kEdge * (plan.edge_ids_at[h] + edges), plan.edge_ids_at[h], edges);
  }
  return static_cast<int64_t>(std::min<Wide>(most, std::numeric_limits<int64_t>::max()));
}

// The memory of a mini-batch: a tensor of any type that has at least `bytes` bytes.
inline uint8_t* output_memory(py::handle memory, int64_t bytes, const Place& place) {
  const View<uint8_t> held = bytes_view(memory, "memory", place);
  if (held.size < bytes)
    throw py::value_error("memory has " + std::to_string(held.size) + " bytes; the plan needs " +
                          std::to_string(bytes));
  return held.data;
}

}  // namespace loader
