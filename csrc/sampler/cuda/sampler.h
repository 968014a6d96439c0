// The GPU sampler: what its kernels take. For host and device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "graph/hetero.h"
#include "graph/lists.h"
#include "sampler/choice.h"
#include "sampler/cuda/pinned_lines.h"

namespace loader {

// How the hops of a mini-batch are put on the GPU:
//   kHopwise      a launch per phase and hop, as in a sampler without a grid barrier
//   kCooperative  one launch, a barrier of the grid between hops, blocks put in order when all hops are done
//   kPhases       one launch, barriers between the phases of kHopwise; bitmaps only. It is what kCooperative
//                 means unless picks are uniform and the mini-batch is small and alone (see `one_launch`)
enum class Schedule : int { kCooperative = 0, kHopwise = 1, kPhases = 2 };

// How the vertices of a mini-batch are kept apart:
//   kBitmap  a bit for each vertex of the graph and hop: membership is one atomic operation, the local id a
//            rank, and no order needs to be made. Its passes and its memory grow with the graph.
//   kHash    a hash set of the mini-batch's size (hash_set.cuh). Only kCooperative and kHopwise.
// Picks that need a scan of the lists have bitmaps only with kHopwise.
enum class VertexSet : int { kBitmap = 0, kHash = 1 };

enum class SampleStatus : int64_t {
  kOk = 0,
  kOverflow = 1,
  kSeedRange = 2,
  kSeedDuplicate = 3,
  kBadWeight = 4,
  kSeedOrder = 5  // types are mixed
};

constexpr int kMaxBatchesPerLaunch = 16;
constexpr int kMaxBlocks = 512;  // of one launch

// Written by the kernel into pinned host memory, `sequence` last.
struct SampleHeader {
  int64_t frontiers[kMaxHops + 1];
  int64_t edges[kMaxHops];
  SampleStatus status;
  int64_t detail;  // the offending seed, or the edge of the offending weight
  // frontiers[0..hops_done] are known, and so are those of edges[0..hops_done] that are not negative.
  int64_t hops_done;
  int64_t counted;  // of HeteroLists the rows so far, of trees the picks; else 0
  int64_t lines;    // of pinned memory that the launch had fetched for all its mini-batches
  uint64_t sequence;
};

// The same of HeteroLists.
struct HeteroHeader : SampleHeader {
  int64_t new_by_type[(kMaxHops + 1) * kMaxTypes];  // vertices that each hop found, from the seeds on
};

// Device memory of one mini-batch in flight: zero at first, left ready for the next launch by each.
struct SampleState {
  SampleHeader header;
  uint64_t error;  // sequence << 8 | status; an entry of an older sequence means nothing
  // Each counter has a line of memory of its own.
  struct alignas(128) Counter {
    unsigned long long value;
    // Of `found`: vertices that each hop appends to the list (kCooperative with bitmaps). One counter would
    // not do: a block that leaves a barrier late must not count what others append at the hop that follows.
    unsigned long long of_hop[kMaxHops];
  } barrier, found, head, tail;
  Counter spare;     // it makes 1,024 bytes: the state of a mini-batch is found by a shift
  Counter together;  // of the first mini-batch of a launch: the barrier of all its blocks
};
static_assert(sizeof(SampleState) == 1024);

// The vertex ids of a graph are cut into at most this many ranges of equal size, by which a hash set puts the
// vertices of a hop in order. A mean hop of 10^5 vertices has a dozen in each.
#ifndef LOADER_SAMPLER_RANGES
#define LOADER_SAMPLER_RANGES 8192
#endif
constexpr int kRanges = LOADER_SAMPLER_RANGES;

// The workspace of a hash set, see hash_set.cuh; that of mini-batch i of a launch lies i strides further.
template <typename N>
struct HashArgs {
  // An id as a key: + 1, since 0 is an empty place. Of the types that atomicCAS takes.
  using Key = std::conditional_t<sizeof(N) == 4, unsigned, unsigned long long>;

  Key* keys;                // [size] zero between launches
  int64_t size;             // of the table, a power of two, at least twice `capacity`
  int64_t capacity;         // vertices, a multiple of 32
  N* found;                 // [capacity] in order of arrival, hop by hop, the seeds first
  uint32_t* places;         // [capacity] theirs in the table
  uint32_t* offsets;        // [capacity] among the vertices of their hop in their range
  N* grouped;               // [capacity] the vertices of a hop by range
  uint32_t* grouped_place;  // [capacity]
  uint32_t* counts;         // [kRanges] vertices of the hop in each range; zero between launches
  uint32_t* begins;         // [range_begins()] their prefix sums
  int shift;                // a range is 2^shift ids
};

// A piece of a long list. Aligned so that it is written at once: the thread that finds a hub writes hundreds.
struct alignas(16) ListPart {
  uint32_t row, number;  // it begins with entry number * ScanArgs::piece of the row's list
  uint32_t found;        // picks in it
  uint32_t done;         // zero between scans; see Scan::join
};

// The workspace of picks that only a scan of the lists tells (list_scan.cuh); that of mini-batch i of a
// launch lies i strides further.
struct ScanArgs {
  int width;               // picks that a row has room for until they are taken
  uint32_t* places;        // [rows_capacity * width] their places in the lists
  uint32_t piece;          // longer lists are cut into pieces of this many entries, an even number
  ListPart* pieces;        // [pieces_capacity]
  uint32_t* piece_places;  // [pieces_capacity * width]
  uint64_t* piece_times;   // [pieces_capacity * width] of a race: when they arrive
  int64_t pieces_capacity;
};

constexpr uint32_t kRaceRounds = 4;                  // a lane takes two entries in each
constexpr uint32_t kRaceEntries = 64 * kRaceRounds;  // of a list that a warp races together

// Shared memory of a warp that races lists: what arrived first so far, and what may be earlier.
LOADER_HD constexpr int64_t race_buffer_bytes(int64_t fanout) { return (fanout + kRaceEntries) * 12; }

// Entries of HashArgs::begins of a mini-batch: one a range, the end, and whether any range is full.
LOADER_HD constexpr int64_t range_begins() { return kRanges + 32; }

// The smallest shift that cuts `num_nodes` ids into at most kRanges ranges.
inline int range_shift(int64_t num_nodes) {
  int shift = 0;
  while (num_nodes > 0 && (num_nodes - 1) >> shift >= kRanges) ++shift;
  return shift;
}

constexpr int64_t kMaxTable = int64_t{1} << 31;  // a place fits a vertex id, and 32 bits

// Places of the table for `capacity` vertices. Half of them stay empty, so that a search ends soon.
inline int64_t table_size(int64_t capacity) {
  int64_t size = 64;
  while (size < 2 * capacity) size *= 2;
  return size;
}

// Entries of SampleArgs::bitmaps, a mini-batch: the bitmaps themselves, then the ranks.
LOADER_HD constexpr int64_t ranks_at(int64_t num_words, int hops) {
  return ((hops + 1) * num_words + 31) / 32 * 32;
}
LOADER_HD constexpr int64_t bitmap_entries(int64_t num_nodes, int hops) {
  const int64_t words = (num_nodes + 31) / 32;
  return ranks_at(words, hops) + (2 * rank_width(hops) * words + 31) / 32 * 32;
}

// What differs between the mini-batches of one launch.
struct BatchArgs {
  const void* seeds;  // [num_seeds]
  int64_t num_seeds;
  uint64_t key;
  void* vertices;             // output: nodes, then each hop's indices
  void* edges;                // output: each hop's indptr, then its edge ids where those are wanted
  int64_t* sizes;             // output: [2 * hops + 1] frontiers, then edges, in device memory; or null
  SampleHeader* host_header;  // pinned host memory
  uint64_t sequence;
  uint64_t next_key = 0;  // of SourceNumbers, as the phase
  uint32_t phase = 0;

  LOADER_HD BatchKeys keys() const { return {key, next_key, phase}; }
};

// What HeteroLists need beside (hetero.cuh).
template <typename ListsOf>
struct HeteroArgs {};
template <typename P, typename N>
struct HeteroArgs<HeteroLists<P, N>> {
  const int16_t* relation_fanouts;  // [hops, num_relations], in device memory
  int num_relations;
  uint32_t takes_all;              // bit h: a relation takes all neighbors at that hop, from 0 on
  uint32_t takes_whole;            // bit h: each relation takes all or none
  bool once;                       // only what the hop before found is expanded
  int64_t row_capacity[kMaxHops];  // lists of each hop
  N* row_vertex;                   // [rows_capacity]
  uint32_t* row_kind;              // [rows_capacity]: relation | slot << 16
};

// What does not depend on how neighbors are picked.
template <typename ListsOf>
struct CommonArgs : HeteroArgs<ListsOf> {
  static_assert(is_lists<ListsOf>, "see graph/lists.h");
  static_assert(std::is_same_v<typename ListsOf::Row, HeteroRow> ||
                    std::is_same_v<typename ListsOf::Row, VertexRow>,
                "a row of a hop is a node, or see graph/hetero.h");
  using Lists = ListsOf;
  using Edge = typename Lists::Edge;
  using Vertex = typename Lists::Vertex;
  using P = Edge;
  using N = Vertex;

  Lists lists;  // in device memory or pinned host memory
  int64_t num_nodes;
  int hops;
  int fanouts[kMaxHops];  // hop order; of HeteroLists the widest that is a number
  int64_t shared_bytes;   // of shared memory that a block may have
  bool edge_ids;
  bool pad;  // fill the outputs to their capacities, or wholly where the seeds are bad

  // Where the outputs begin, in elements of `vertices` (nodes at 0) and of `edges`, hop order; the capacities
  // bound what is written.
  int64_t indices_at[kMaxHops];   // [edge_capacity[h]]
  int64_t indptr_at[kMaxHops];    // [frontier_capacity[h] + 1]
  int64_t edge_ids_at[kMaxHops];  // [edge_capacity[h]]
  int64_t frontier_capacity[kMaxHops + 1];
  int64_t edge_capacity[kMaxHops];

  // Workspace of the first mini-batch of a launch; that of number i lies i strides further.
  // [bitmap_entries()]: [hops + 1][num_words] vertices of each frontier or hop, zero between launches; then
  // the ranks of kHopwise: [num_words][rank_width()], or for more than four hops two times [num_words][4].
  uint32_t* bitmaps;
  int64_t bitmaps_stride;
  N* local;  // [num_nodes] local ids by vertex; of a hash set [size], by place in the table
  int64_t local_stride;
  VertexSet vertex_set;  // `bitmaps` or `hash`, the other is not used
  HashArgs<N> hash;
  uint32_t* totals;  // [workspace_totals()] partial sums of blocks and warps, and first ranks of warps
  SampleState* state;
  // Sized by the plan:
  P* row_begin;          // [rows_capacity] where a vertex' neighbor list begins, in order of arrival
  uint32_t* row_degree;  // [rows_capacity] its length
  uint32_t* row_picks;   // [rows_capacity] how many of it the next hop picks, if only a scan tells
  ScanArgs scan;
  N* list;  // [rows_capacity] vertices in order of arrival
  int64_t rows_capacity;
  N* picks;      // [picks_capacity] global ids in order of arrival
  P* positions;  // [picks_capacity] their places in the lists, where edge ids are wanted
  int64_t picks_capacity;

  LineArgs<P, N> lines;

  int num_batches;
  BatchArgs batches[kMaxBatchesPerLaunch];
};

template <typename ListsOf, typename ChoiceOf>
struct SampleArgs : CommonArgs<ListsOf> {
  using Choice = ChoiceOf;

  Choice choice;
};

#ifndef LOADER_SAMPLER_WARPS
#define LOADER_SAMPLER_WARPS 16
#endif
constexpr int kWarps = LOADER_SAMPLER_WARPS;  // of a block
constexpr int kBlock = 32 * kWarps;           // threads

// One block of 16 warps a multiprocessor, with registers enough that nothing is spilled: a thread has a row's
// loads in flight at once, so more warps bring no more, and fewer blocks meet faster at the grid's barrier.
constexpr int kBlocksPerMultiprocessor = 1;

// The same of a kernel that only scans lists. Two blocks wait less, but a race needs more registers than they
// have. On an H200, (15, 10, 5) x 1,024 over the shape of ogbn-products: two blocks took 0.56 ms for a race
// and 0.39 for LABOR, one block 0.53 and 0.42.
template <typename Choice>
constexpr int kScanBlocksPerMultiprocessor = std::is_same_v<Choice, RaceChoice> ? 1 : 2;

// The widest row that a thread of a kernel picks in registers; kWide: a warp picks rows of any fanout.
constexpr int kWide = 0;

// Blocks of lists by vertex and relation whose rows warps pick: a warp has few loads under way, so two
// blocks bring more than registers for which nothing is spilled. On an H200, (25, 20) x 1,024 over the shape
// of ogbn-mag: 0.109 ms, and 0.146 with one.
template <int Widest, typename Choice>
constexpr int kHeteroBlocksPerMultiprocessor = Widest == kWide && Choice::kCountsByDegree ? 2 : 1;

// Entries that a row of picks takes in the cooperative schedule; `fanout` is at most 32.
LOADER_HD constexpr int pick_width(int fanout) {
  return fanout <= 5 ? 5 : fanout <= 10 ? 10 : fanout <= 15 ? 15 : fanout <= 20 ? 20 : 32;
}

// The widest of the fanouts, and at least 1: all neighbors are not drawn.
LOADER_HD constexpr int widest_fanout(const int* fanouts, int hops) {
  int widest = 1;
  for (int h = 0; h < hops; ++h) widest = fanouts[h] > widest ? fanouts[h] : widest;
  return widest;
}

// Shared memory that kernels declare, at most: it comes on top of what they pick in.
constexpr int64_t kDeclaredBytes = 16 * 1024;

// Shared memory in which a block of any fanouts picks, a warp a row.
constexpr int64_t wide_bytes(int widest) { return int64_t{kWarps} * widest * int64_t{sizeof(uint32_t)}; }

// Warps of a block that race lists: those that there is shared memory for.
LOADER_HD constexpr int race_warps(int64_t fanout, int64_t shared_bytes) {
  const int64_t most = (shared_bytes - kDeclaredBytes) / race_buffer_bytes(fanout);
  return most < 1 ? 1 : most < kWarps ? static_cast<int>(most) : kWarps;
}

// Picks of a list for which there is room, if `fanout` is the widest: those of a race, and more than nearly
// all lists have if they have `fanout` on average.
inline int scan_width(const RaceChoice&, int fanout) { return fanout; }
inline int scan_width(const LaborChoice&, int fanout) {
  constexpr int kMost = 64;  // of wide fanouts lists are looked at again
  int root = 1;
  while (root * root < fanout) ++root;
  return fanout + 4 * root < kMost ? fanout + 4 * root : kMost;
}
inline int scan_width(const ScanChoice& choice, int fanout) {
  return choice.races ? scan_width(choice.race, fanout) : scan_width(choice.labor, fanout);
}

// Entries of a piece of a list, so that there is room for the picks of all pieces in a few million bytes, and
// a warp is done with one soon. At most twice `num_edges` / `piece` are cut, for no list is there twice.
inline uint32_t piece_entries(int64_t num_edges, int width) {
  constexpr int64_t kLeast = 2048, kMost = int64_t{1} << 30, kPicks = 1 << 20;
  const int64_t entries = num_edges / kPicks * width;
  return static_cast<uint32_t>(entries < kLeast ? kLeast : entries > kMost ? kMost : entries / 2 * 2);
}

// The widest fanout that a block with so much shared memory can pick.
constexpr int most_fanout(int64_t shared_bytes) {
  const int64_t most = (shared_bytes - kDeclaredBytes) / wide_bytes(1);
  return static_cast<int>(most < kMaxFanout ? most : kMaxFanout);
}

static_assert(kWarps != 16 || most_fanout(64 * 1024) == 768, "told of GPUs with the least shared memory");

// The width of the kernel that serves all of these fanouts, at least 10. Graphs of 2^31 vertices and more are
// rare: they do without the code for narrow rows, which is long to compile. `shared_bytes`: that a block may
// have.
template <typename N>
int kernel_width(const int* fanouts, int hops, int64_t shared_bytes) {
  for (int h = 0; h < hops; ++h)
    if (fanouts[h] == kAllNeighbors || fanouts[h] > 32 || sizeof(N) == 8) return kWide;
  const int widest = widest_fanout(fanouts, hops), width = pick_width(widest > 10 ? widest : 10);
  const int64_t picks = int64_t{kBlock} * width * static_cast<int64_t>(sizeof(N));
  return picks + kDeclaredBytes <= shared_bytes ? width : kWide;
}

// The schedule of one launch with bitmaps, for mini-batches of up to this many edges in launches of up to
// this many mini-batches. Picks that are not uniform go in phases. In order of arrival a hop needs one
// barrier, in phases three: that tells if a mini-batch is small and alone. On an H200, ms of a whole
// mini-batch by order of arrival and by phases: (10, 10) x 10,240 0.110 and 0.125, (10, 10, 10) x 2,048 0.168
// and 0.174, x 10,240 0.345 and 0.331, (15, 15, 15) x 4,096 0.399 and 0.355, (20, 20, 20) x 10,240 0.896 and
// 0.749; with eight in a launch (15, 10, 5) x 1,024 0.084 and 0.054.
constexpr int64_t kEdgesInPhases = 4'000'000;
inline Schedule one_launch(int width, bool uniform, int64_t edges, int64_t slots) {
  return width == kWide || !uniform || edges > kEdgesInPhases || slots > 1 ? Schedule::kPhases
                                                                           : Schedule::kCooperative;
}

// The widest row of which a thread picks places, and the kernel for fanouts of a width. Few are compiled:
// reading the lists takes far longer than picking.
constexpr int kPlacesWidth = 20;
template <typename N>
constexpr int places_width(int width, bool uniform) {
  return uniform && sizeof(N) == 4 && width != kWide && width <= kPlacesWidth ? kPlacesWidth : kWide;
}

// Whether a schedule reads lists by the line.
constexpr bool lined_schedule(Schedule schedule, VertexSet set, bool uniform) {
  return schedule == Schedule::kHopwise ||
         (schedule == Schedule::kCooperative && set == VertexSet::kBitmap && uniform);
}

// Words of the bitmap in shared memory by which a full range is ordered, a part of it at a time.
#ifndef LOADER_SAMPLER_WINDOW
#define LOADER_SAMPLER_WINDOW 2048
#endif
constexpr int kWindowWords = LOADER_SAMPLER_WINDOW;

// Shared memory of `group` and of `rank`.
constexpr size_t kOrderBytes = sizeof(uint32_t) * (kRanges > 2 * kWindowWords ? kRanges : 2 * kWindowWords);

// uint32 entries of SampleArgs::totals, a mini-batch: 64-bit sums, of blocks and of warps.
constexpr int kMaxValues = kMaxHops + kMaxHops * (kMaxHops + 1) / 2;
LOADER_HD constexpr int64_t workspace_totals() { return int64_t{2} * kMaxValues * kMaxBlocks * (1 + kWarps); }

template <typename P, typename N>
using UniformArgs = SampleArgs<PlainLists<P, N>, UniformChoice>;

}  // namespace loader
