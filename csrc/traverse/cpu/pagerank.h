// PageRank by CPU threads.
#pragma once

#include <cstdint>

#include "graph/lists.h"
#include "parallel.h"
#include "traverse/rank.h"

namespace loader {

// The rank of each vertex, whose list has the vertices before it. Each vertex adds up what those pass on, so
// no two threads write to one place (pull).
template <typename P, typename N>
RankResult pagerank_on_cpu(const PlainGraph<P, N>& back, const RankLaw& law, double* ranks, Workers& workers);

}  // namespace loader
