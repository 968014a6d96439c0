// What a captured step on mini-batches of several types does before its layers. It moves segments (the nodes
// of one type that one hop found) from where they were loaded to places of their own, finds the entries of
// products, and encodes times. Each takes one launch; torch would take some thirty, one after the other. Raw
// device pointers and a stream in; nothing waits for the host.
#pragma once

#include <cstdint>

#include "gpu/stream.h"

namespace loader {

// See loader/ops/captured_hetero_moves.py, which says the same in torch.
struct MovedHops {
  // Of the segments, [segments] each: where its nodes, its rows and the entries of its hop begin, how many
  // nodes it has, where they end, by how much sources in it move, and how many nodes of its type come before.
  const int64_t *begin, *size, *row, *edges, *end, *shift, *of_type;
  const int64_t* slots;     // rows of each of its nodes
  const int64_t* of_types;  // [types + 1] where the distinct nodes of each type begin; the number of entries
  const int64_t* first;     // [types] where they are to begin
  int64_t segments, types;
  // Of each node and row with room: its segment, its place there, and its type.
  const int64_t *segment, *place, *type, *segment_of_row, *place_of_row;
  int64_t nodes, rows, entries;
  const int32_t *indptr, *indices;
  const int32_t *distinct, *tree;  // of each node; null: nodes are distinct, and there are no trees
  int32_t *to_indptr, *to_indices;
  int64_t *to_distinct, *to_tree;
};

// Products of distinct rows in place of rows, see loader/ops/mapped_rows.py.
struct MappedEntries {
  const int32_t *indptr, *indices;  // [rows + 1], [entries]
  const int64_t* row;               // of each source, its place among the distinct nodes
  const int64_t* of_node;           // [2, nodes] the product of a node's own row is a * place + b
  const int64_t* of_row;            // [2, rows + 1] the same of a row's entries
  const int64_t* node_of_row;       // [rows + 1]
  const int64_t* first_row;         // [nodes + 1]
  int64_t nodes, rows, entries;
  int32_t *begins, *found;  // [nodes + 1], [entries + nodes]
};

// The sines and cosines of what lies between a seed's time and a node's own.
struct TimesSince {
  const int64_t *seed_times, *tree;  // seconds of each seed; the tree of each node
  const int64_t* row;                // of each node, its place in `known`
  const float* known;                // [distinct nodes, 2] day and second of each
  const float* frequency;            // [half]
  int64_t nodes, half;
  float* out;  // [nodes, 2 half]
};

constexpr int kLayoutThreads = 256;
constexpr int64_t kSecondsOfDay = 86'400;

// On a stream of `device`, whose context is the current one; throw as the other launches do.
void launch_moved_hops(const MovedHops& args, int device, gpu::Stream stream);
void launch_mapped_entries(const MappedEntries& args, int device, gpu::Stream stream);
void launch_times_since(const TimesSince& args, int device, gpu::Stream stream);

}  // namespace loader
