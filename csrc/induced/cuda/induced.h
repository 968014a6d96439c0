// Finds the edges among given vertices on a GPU; see induced/edges_between.h. The host waits once: it learns
// how many edges were found.
#pragma once

#include <cstdint>

#include "gpu/stream.h"
#include "induced/edges_between.h"

namespace loader {

#ifdef LOADER_INDUCED_THREADS  // tests have few threads, and short chunks
constexpr int kInducedThreads = LOADER_INDUCED_THREADS, kInducedChunk = 64;
#else
constexpr int kInducedThreads = 256;  // of a block
constexpr int kInducedChunk = 256;    // entries that a warp reads, a multiple of 32
#endif

constexpr int kKnownBits = 2;  // 4 hash values for each slot, so 8 or more for each vertex

constexpr int kInducedAtOnce = kInducedChunk >= 128 ? 4 : 2;  // entries that a lane looks at
constexpr int kInducedWarps = kInducedThreads / 32;
// A block works off this many entries of the asked lists at a time, a chunk in each warp.
constexpr int64_t kInducedTile = int64_t{kInducedWarps} * kInducedChunk;

// What the host reads.
struct InducedReport {
  uint64_t repeated;  // kMostKey less the least key that is given twice; 0: none
  uint64_t wrong;     // kMostKey less the first place of a vertex that is none, or whose set is; 0: none
  int64_t entries;    // of the asked lists
  int64_t edges;      // that were found, unless there are more entries than room
};

template <typename P, typename N>
struct InducedCall {
  InducedAsked<P, N> asked;
  int64_t num_lists;
  int64_t room;  // entries that `found_bits` has room for
  int bits;      // of the table
  InducedReport* report;
  uint64_t* keys;        // [2^bits], keys plus one; 0 at first
  uint32_t* known;       // [2^bits / 8]: of 4 hash values per slot a bit, whether a vertex has it; 0 at first
  int32_t* places;       // [2^bits]
  int64_t* begins;       // [num_rows], first places of the asked lists
  int64_t* firsts;       // [num_rows], first entries of the asked lists, from that of their block of lists on
  int64_t* list_sums;    // of each block of lists: its entries, then the entries before it
  uint32_t* found_bits;  // [room / 32], rounded up: which entries are edges that were found
  int64_t* chunk_sums;   // [tiles * kInducedWarps]: of each chunk, the edges before it in its tile
  int64_t* tile_sums;    // [tiles]: of each tile its edges, then the edges before it
  int64_t* out_sources;  // [edges], places among the given vertices
  int64_t* out_rows;     // [edges], which of the asked lists
  int64_t* out_edges;    // [edges], places in the lists

  // Most sources are not among the vertices. One bit says so for most of them, and the bits fit into an L1
  // cache where the table does not.
  LOADER_HD uint64_t known_bit(uint64_t key) const { return first_slot(key, bits + kKnownBits); }
  LOADER_HD int64_t blocks_of_lists() const {
    return (asked.num_rows + kInducedThreads - 1) / kInducedThreads;
  }
  // The entry with which list `i` begins.
  LOADER_HD int64_t first_entry(int64_t i) const { return list_sums[i / kInducedThreads] + firsts[i]; }
};

LOADER_HD int64_t induced_tiles(int64_t entries) { return (entries + kInducedTile - 1) / kInducedTile; }

// Numbers that are replaced by the sums of those before them.
struct InducedSums {
  int64_t* sums;
  int64_t count;  // -1: of the tiles of `*entries`, but of `room` at most
  const int64_t* entries;
  int64_t room;
  int64_t* total;
};

// Puts the search on a stream of `device`, whose context is the current one. Throws gpu::Error if a launch is
// refused.
template <typename P, typename N>
void find_induced(const InducedCall<P, N>& call, int device, gpu::Stream stream);

// Puts the writing of the edges on the same stream, once their number is known.
template <typename P, typename N>
void write_induced(const InducedCall<P, N>& call, int64_t entries, int device, gpu::Stream stream);

}  // namespace loader
