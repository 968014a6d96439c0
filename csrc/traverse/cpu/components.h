// Connected components by CPU threads.
#pragma once

#include <cstdint>

#include "graph/lists.h"
#include "parallel.h"

namespace loader {

// Labels each vertex by the smallest vertex of its (weakly) connected component. Afforest (Sutton, Ben-Nun,
// Barak, IPDPS 2018): the first neighbors of every vertex join most of the graph, and if the lists are
// symmetric, the largest part that they make need not be read again.
template <typename P, typename N>
void components_on_cpu(const PlainGraph<P, N>& graph, bool symmetric, N* label, Workers& workers);

}  // namespace loader
