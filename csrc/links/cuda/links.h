// Mini-batches of links on a GPU: their ends, and edges that are left out of what was sampled around them.
#pragma once

#include <cstdint>

#include "gpu/stream.h"
#include "links/negatives.h"

namespace loader {

constexpr int kLinkThreads = 128;  // of a block, but for `distinct_ends_kernel`
constexpr int kSortThreads = 1024;
constexpr int64_t kMostSorted = 4096;  // ends that one block sorts in 32 KiB of shared memory

// The ends of the links of a mini-batch, one list after the other: the sources of the positive links, their
// targets, the sources of the negative links if they are drawn, and the targets of the negative links. They
// are ids of the graph's one range. An end is -1 if it is no node of its type; so is the target of a negative
// link if there is none.
struct LinkEnds {
  const void* pairs;  // [links, 2], the positive links
  bool wide;          // pairs are int64, else int32
  int64_t links;
  int64_t negatives;
  int64_t each;  // negatives of each positive link, which have its source; 0: both ends are drawn
  uint64_t key;  // of the mini-batch for Purpose::kNegative
  EndCounts counts;
  int64_t first_source, first_target;  // ids of the first node of both types
  bool strict;
  int64_t* out;

  LOADER_HD int64_t pair(int64_t i) const {
    return wide ? static_cast<const int64_t*>(pairs)[i] : static_cast<const int32_t*>(pairs)[i];
  }
  LOADER_HD int64_t source_id(int64_t source) const {
    return source >= 0 && source < counts.sources ? first_source + source : -1;
  }
  LOADER_HD int64_t target_id(int64_t target) const {
    return target >= 0 && target < counts.targets ? first_target + target : -1;
  }
  LOADER_HD int64_t count() const { return 2 * links + (each ? 1 : 2) * negatives; }
};

// What `distinct_ends_kernel` tells.
struct DistinctEnds {
  int64_t count;  // of distinct ends
  int64_t bad;    // place of the first end that is no vertex, or -1
};

// Edges between some pairs of vertices, as a set of target * seeds + source by open addressing; -1 is free.
struct EdgeSet {
  unsigned long long* slots;
  uint64_t mask;  // number of slots, a power of two, less one
  int64_t seeds;  // all ends are below

  LOADER_HD uint64_t key(int64_t source, int64_t target) const {
    return static_cast<uint64_t>(target) * static_cast<uint64_t>(seeds) + static_cast<uint64_t>(source);
  }
  LOADER_HD uint64_t first_slot(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ull >> 20) & mask; }
};

// What follows puts kernels on a stream of `device`, whose context is the current one. Throws
// std::runtime_error if a launch is refused.

template <typename P, typename N>
void find_ends(const LinkEnds& ends, const KnownEdges<P, N>& known, int device, gpu::Stream stream);

// The distinct ends, ascending, and of each end the place in that list. At most kMostSorted ends.
template <typename N>
void distinct_ends(const int64_t* ends, int64_t count, int64_t num_nodes, N* seeds, int64_t* local,
                   DistinctEnds* outcome, int device, gpu::Stream stream);

// Puts links into an empty set; with `reverse` also in the other direction.
void insert_edges(const EdgeSet& set, const int64_t* sources, const int64_t* targets, int64_t count,
                  bool reverse, int device, gpu::Stream stream);

// Writes the positions of the edges to the first `set.seeds` destinations that are in the set to `gone`, in
// any order, and adds their number to `found`. With `destinations` these edges are the first `num_edges`, and
// `indptr` is null; else indptr[set.seeds] says how many there are, and `num_edges` is at least that.
template <typename P, typename N>
void find_edges(const EdgeSet& set, const P* indptr, const N* sources, const N* destinations,
                int64_t num_edges, P* gone, unsigned long long* found, int device, gpu::Stream stream);

// Copies `in` [count] to `out` without the entries at the `num_gone` ascending positions `gone`.
template <typename T, typename P>
void drop_entries(const T* in, int64_t count, const P* gone, int64_t num_gone, T* out, int device,
                  gpu::Stream stream);

// The `indptr` [count] of lists without the entries at those positions.
template <typename P>
void drop_from_lists(const P* indptr, int64_t count, const P* gone, int64_t num_gone, P* out, int device,
                     gpu::Stream stream);

}  // namespace loader
