// The filter of a graph's edges, made by CPU threads.
#pragma once

#include <cstdint>

#include "graph/edge_filter.h"
#include "parallel.h"

namespace loader {

// Marks all edges in `filter`, whose words are zero.
template <typename P, typename N>
void fill_filter(const PlainLists<P, N>& lists, int64_t num_nodes, const EdgeFilter& filter,
                 ThreadPool& pool);

}  // namespace loader
