// A filter of edges: says of most pairs of vertices that are no edge that they are none, by one read.
//
// Whether x is listed at t is a search otherwise, a chain of reads, and mostly for a no. It is a Bloom filter
// (CACM 1970) in words of 64 bits, of which an edge marks three bits of one word (blocked: Putze, Sanders and
// Singler, WEA 2007). At one byte an edge it lets about one in twenty pass that are none; those are searched.
#pragma once

#include <cstdint>

#include "graph/lists.h"

namespace loader {

struct EdgeFilter {
  uint64_t* words;  // nullptr: there is none, and everything passes
  uint64_t count;

  struct Mark {
    uint64_t word, bits;
  };

  // Where the edge from t to x leaves its mark.
  LOADER_HD Mark mark(uint64_t t, uint64_t x) const {
    uint64_t h =
        t * 0x9E3779B97F4A7C15u + x;  // then the mixer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    h ^= h >> 31;
    const uint64_t bits =
        uint64_t{1} << (h & 63) | uint64_t{1} << (h >> 6 & 63) | uint64_t{1} << (h >> 12 & 63);
#ifdef __CUDA_ARCH__
    return {__umul64hi(h, count), bits};
#else
    return {static_cast<uint64_t>(static_cast<unsigned __int128>(h) * count >> 64), bits};
#endif
  }

  // False only if there is no edge.
  LOADER_HD bool passes(Mark mark) const { return (load(words + mark.word) & mark.bits) == mark.bits; }
};

// Words of the filter of a graph.
LOADER_HD uint64_t filter_words(int64_t num_edges) { return static_cast<uint64_t>(num_edges) / 8 + 1; }

}  // namespace loader
