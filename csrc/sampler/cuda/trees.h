// The GPU's sampler of trees (sampler/trees.h): what its kernel takes. For host and device.
#pragma once

#include "gpu/spread_barrier.h"
#include "sampler/cuda/sampler.h"
#include "sampler/trees.h"

namespace loader {

constexpr int kMostTreeBlock = 256;  // threads of a block, which samples one tree at a time
constexpr int kMostTreeWarps = kMostTreeBlock / 32;
// Blocks of the most threads that a multiprocessor has at once: a race needs more registers.
template <typename Choice>
constexpr int kTreeBlocks = std::is_same_v<Choice, ScanChoice> ? 2 : 4;
constexpr int kMostTreeBlocks = 4096;                         // of one launch
constexpr int64_t kMostTreePlaces = int64_t{1} << 31;         // of a table
constexpr int64_t kMostTreeEntries = (int64_t{1} << 32) - 2;  // of a mini-batch: 32 bits number them

// The product of numbers that 32 bits hold: one instruction, where one of 64 bits takes four.
LOADER_HD int64_t product_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(a)} * static_cast<uint32_t>(b));
}

// Device memory of one mini-batch in flight: zero at first, left ready for the next launch by each.
struct TreeState {
  using Counter = SampleState::Counter;

  uint64_t error;  // as of SampleState
  int64_t detail;  // of the error, see SampleHeader
  SpreadBarrier barrier;
  Counter vertices, rows, picks;
  Counter table;    // places that the largest tree needs
  Counter tickets;  // of each hop, from 0 on
};

// What differs between the mini-batches of one launch.
struct TreeBatch {
  const void* seeds;  // [num_seeds] vertices or, if there are times, [num_seeds, 2] int64: vertices and times
  int64_t num_seeds;
  uint64_t key;
  void* vertices;  // output: as of BatchArgs
  void* edges;
  int32_t* trees;             // output: the tree of each vertex
  SampleHeader* host_header;  // a HeteroHeader, in pinned host memory
  uint64_t sequence;
};

// What picks that only a scan tells need beside (tree_scan.cuh).
template <typename Choice>
struct TreeScanArgs {};
template <>
struct TreeScanArgs<ScanChoice> {
  int race_widest;  // the widest fanout
  int racing;       // warps of a block that pick at once
  struct {
    uint64_t next_key;
    uint32_t phase;
  } turns[kMaxBatchesPerLaunch];  // of each mini-batch, see BatchArgs
};

template <typename PT, typename NT, typename ChoiceOf>
struct TreeArgs : TreeScanArgs<ChoiceOf> {
  using P = PT;
  using N = NT;
  using Choice = ChoiceOf;
  using Key = typename HashArgs<N>::Key;

  TimedLists<P, N> lists;  // in device memory or pinned host memory
  int64_t num_nodes;
  int hops, num_relations;
  const int16_t* relation_fanouts;  // [hops, num_relations], in device memory
  int widest;                       // the widest that is a number, if warps pick rows
  Choice choice;
  BoundRule bounds;
  SeedTimes times;
  bool paths, edge_ids;

  // Outputs, as of CommonArgs.
  int64_t indices_at[kMaxHops], indptr_at[kMaxHops], edge_ids_at[kMaxHops];
  int64_t frontier_capacity[kMaxHops + 1], edge_capacity[kMaxHops], row_capacity[kMaxHops];

  // Workspace of the first mini-batch of a launch; that of number i lies i strides further.
  TreeState* state;
  int64_t trees_capacity;
  // [hops + 1][trees]: where in `vertices` those lie that a hop found in a tree, and how many there are with
  // those before; where the rows and the picks of the hop that follows lie.
  uint32_t *vertices_at, *vertices_known, *rows_at, *picks_at;
  uint32_t *found, *edges;  // [hops + 1][types][trees] vertices that a hop found, and edges of their rows
  // Which of two copies of TreeCounts::sums is in use, and from kSumsAt on the copies. A launch finds its own
  // zero and leaves the other one so.
  uint32_t* sums;
  int groups_capacity;   // of trees, see tree_group_bits
  Bound* tree_bounds;    // [trees]
  N* vertices;           // [vertices_capacity] ids
  Bound* vertex_bounds;  // the same of BoundRule::of_edge
  int64_t vertices_capacity;
  P* row_begin;  // [rows_capacity] of what a row sees
  uint32_t* row_degree;
  uint32_t* row_drawn;  // of a tree and hop those that are not taken whole, in any order
  uint32_t* row_first;  // its first pick among those of its tree and hop
  int64_t rows_capacity;
  P* places;           // [picks_capacity] in the lists
  uint32_t* picks;     // [picks_capacity] places in the tree's table, then numbers of vertices in the tree
  N* sources;          // [picks_capacity] ids, and
  Bound* pick_bounds;  // the bounds, where each pick is a vertex
  int64_t picks_capacity;

  // Workspace of a block of the launch; that of block i lies i strides further. What a tree needs that is
  // smaller lies in shared memory.
  Key* keys;          // [table_capacity], a power of two or 0
  uint32_t* numbers;  // [table_capacity]
  N* sorted;          // [table_capacity / 2] vertices that are new
  uint32_t* sorted_places;
  int64_t table_capacity;
  int shared_places, shared_sorted;  // powers of two

  int num_batches;
  TreeBatch batches[kMaxBatchesPerLaunch];
};

// Trees of a group, as a power of two: there are about as many groups.
LOADER_HD constexpr int tree_group_bits(int64_t trees) {
  int bits = 5;
  while (int64_t{1} << 2 * bits < trees) ++bits;
  return bits;
}

// The sums of a mini-batch: where they begin, and words of one copy.
constexpr int kSumsAt = 32;
LOADER_HD constexpr int64_t tree_sums(int hops, int types, int groups) {
  return int64_t{2} * (hops + 1) * types * (1 + groups);
}

// Shared memory in which a tree is written, see TreeWriter: words for each hop and type.
constexpr int kWordsToWrite = 11;
LOADER_HD constexpr size_t tree_write_bytes(int hops, int types) {
  return sizeof(uint32_t) * kWordsToWrite * (static_cast<size_t>(hops + 1) * static_cast<size_t>(types) + 1);
}

// Shared memory in which the warps of a block pick rows; a kernel that needs none has `widest` 0.
LOADER_HD constexpr size_t tree_stage_bytes(int widest, int threads) {
  return (sizeof(uint32_t) * static_cast<size_t>(threads / 32) * static_cast<size_t>(widest) + 15) / 16 * 16;
}

}  // namespace loader
