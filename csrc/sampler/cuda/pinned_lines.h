// How lists in pinned host memory are read, and what kernels take for it. For host and device.
#pragma once

#include <cstdint>

#include "sampler/pick.h"

namespace loader {

// By what a vertex of a bitmap finds its local id, hop by hop: for each word of the bitmaps and each hop the
// bits that the hop added, and the local id of the first of them; the local ids of a hop ascend with the
// vertices.
struct Rank {
  uint32_t bits, first;
};

// Ranks of a word: one memory sector for up to four hops, in whole loads of 16 bytes.
LOADER_HD constexpr int rank_width(int hops) { return hops <= 2 ? 2 : hops <= 4 ? 4 : 8; }
static_assert(kMaxHops <= 8, "a word has at most 8 ranks");

// How lists in pinned host memory are read:
//   kWords    each pick by itself
//   kAligned  by whole lines of 128 bytes
//   kSectors  by sectors of 32 bytes. Those of a line that are needed, and those between them, are read by
//             one request, of 32 to 128 bytes
enum class Reads : int { kWords = 0, kAligned = 1, kSectors = 2 };

// Of a unit that is read.
constexpr int unit_bytes(Reads reads) { return reads == Reads::kSectors ? 32 : 128; }

// Copies of lists in GPU memory.
template <typename P, typename N>
struct CachedLists {
  const P* begins;   // [num_nodes] where a list begins in `entries`, negative if it is not there; or null
  const N* entries;  // one list behind the other
};

// What sampling hop by hop needs to read lists by units, lines or sectors, see pinned_lines.cuh. The
// workspace is that of a launch, not of each mini-batch.
template <typename P, typename N>
struct LineArgs {
  const N* entries;  // [num_entries] the lists, in pinned host memory
  int64_t num_entries;
  int log_entries;  // of a unit, the logarithm
  int shift;        // entries that the first unit has before them
  int64_t words;    // of the bitmap of units
  uint32_t* marks;  // [words] units that some hop asked for, zero between launches; null: no unit is copied
  Rank* ranks;      // [words][rank_width()] by what a unit finds its slot, zero between launches
  unsigned long long*
      used;          // slots taken, zero between launches; more than `capacity` where these were too few
  N* staged;         // [capacity] units
  int64_t capacity;  // units
  int fetch_blocks;  // thread blocks that copy units, at most; 0: all
  CachedLists<P, N> cached;
  P* places;  // [places_capacity] for each mini-batch, the picks of a hop; null: words are read
  int64_t places_capacity;

  // Of a launch of this many.
  LOADER_HD int blocks_that_fetch(int blocks) const {
    return fetch_blocks > 0 && fetch_blocks < blocks ? fetch_blocks : blocks;
  }

  // Of a unit.
  LOADER_HD int64_t num_in_unit() const { return int64_t{1} << log_entries; }

  // The lists of `num` entries at `at`, read in this way.
  void set_lists(const N* at, int64_t num, Reads reads) {
    const int bytes = unit_bytes(reads), each = bytes / int{sizeof(N)};
    entries = at;
    num_entries = num;
    log_entries = 0;
    while (1 << log_entries < each) ++log_entries;
    // Also if sectors are counted, the first of them begins a line.
    shift = static_cast<int>(reinterpret_cast<uintptr_t>(at) % 128 / sizeof(N));
  }
  int64_t needed_words() const { return ((num_entries + shift) / num_in_unit() + 1 + 31) / 32; }
};

}  // namespace loader
