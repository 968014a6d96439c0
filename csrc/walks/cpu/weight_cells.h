// The cells that walks by weight read, made by CPU threads.
#pragma once

#include <cstdint>

#include "parallel.h"
#include "sampler/weighted.h"
#include "walks/weighted.h"

namespace loader {

// out [num_edges], of the lists' alias tables `cells`.
template <typename P, typename N>
void make_walk_cells(const PlainLists<P, N>& lists, int64_t num_nodes, const AliasCell* cells,
                     WalkCell<N>* out, ThreadPool& pool);

}  // namespace loader
