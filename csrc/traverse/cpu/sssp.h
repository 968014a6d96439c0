// Shortest paths by CPU threads.
#pragma once

#include <cstdint>

#include "graph/lists.h"
#include "parallel.h"
#include "traverse/lengths.h"

namespace loader {

// The length of the shortest path from the nearest source to each vertex, by near and far piles (Davidson,
// Baxter, Garland, Owens, IPDPS 2014): vertices whose length is within `delta` of the shortest one come
// first. The lengths are the least over all paths of the sums from left to right, whatever came first.
template <typename P, typename N, typename W>
void sssp_on_cpu(const PlainGraph<P, N>& onward, const W* weights, const N* sources, int64_t count, W delta,
                 typename Length<W>::Bits* length, Workers& workers);

}  // namespace loader
