// Finds the edges among given vertices on a GPU; see induced/asked.h. The host learns two numbers on the way:
// how many entries the asked lists have, and how many of them are edges that were found.
#pragma once

#include <cstdint>

#include "gpu/stream.h"
#include "induced/asked.h"

namespace loader {

#ifdef LOADER_INDUCED_THREADS  // tests have few threads, and short chunks
constexpr int kInducedThreads = LOADER_INDUCED_THREADS, kInducedChunk = 64;
#else
constexpr int kInducedThreads = 256;  // of a block
constexpr int kInducedChunk = 256;    // entries that a warp reads, a multiple of 32
#endif

constexpr int kKnownBits = 2;  // 4 hash values for each slot, so 8 or more for each vertex

// What the host is told. 0 at first: a kernel raises it.
struct InducedReport {
  uint64_t repeated;  // kMostKey less the least key that is given twice
  uint64_t wrong;     // kMostKey less the first place of a vertex that is none
  uint64_t entries;   // of the asked lists
};

template <typename P, typename N>
struct InducedCall {
  InducedAsked<P, N> asked;
  int64_t num_lists;
  int bits;         // of the table
  uint64_t* keys;   // [2^bits], keys plus one; 0 at first
  uint32_t* known;  // [2^bits / 8]: of 4 hash values per slot a bit, whether a vertex has it; 0 at first
  int32_t* places;  // [2^bits]
  InducedReport* report;
  int64_t* begins;  // [num_rows], first entries of the asked lists
  int64_t* ends;    // [num_rows + 1]: 0, then the lengths of the lists; later the sums of these up to there
  int64_t entries;  // of the asked lists
  uint32_t* found_bits;  // [entries / 32], rounded up: which entries are edges that were found
  int64_t* sums;         // [chunks + 1]: 0, then the edges of each chunk; later the sums of these up to there
  int64_t* out_sources;  // [edges], places among the given vertices
  int64_t* out_rows;     // [edges], which of the asked lists
  int64_t* out_edges;    // [edges], places in the lists

  // Most sources are not among the vertices. One bit says so for most of them, and the bits fit into an L1
  // cache where the table does not.
  LOADER_HD uint64_t known_bit(uint64_t key) const { return first_slot(key, bits + kKnownBits); }
  LOADER_HD int64_t chunks() const { return (entries + kInducedChunk - 1) / kInducedChunk; }
};

// Puts one step on a stream of `device`, whose context is the current one: the table and the lengths of the
// lists, the edges of each chunk, the edges themselves. Between them the host has the sums made. Throws
// gpu::Error if a launch is refused.
template <typename P, typename N>
void induced_table(const InducedCall<P, N>& call, int device, gpu::Stream stream);
template <typename P, typename N>
void induced_count(const InducedCall<P, N>& call, int device, gpu::Stream stream);
template <typename P, typename N>
void induced_edges(const InducedCall<P, N>& call, int device, gpu::Stream stream);

}  // namespace loader
