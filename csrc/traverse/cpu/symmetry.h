// Whether each edge of a graph has its reverse.
#pragma once

#include <cstdint>

#include "graph/lists.h"
#include "parallel.h"

namespace loader {

// Whether the edges, with the bits of their weights if `weights` is not null, are the same when all are
// turned round. Compares sums over all edges of 64-bit hashes of (from, to, weight) and of (to, from,
// weight): sets that differ have equal sums with probability 2^-64.
template <typename P, typename N>
bool is_symmetric(const PlainGraph<P, N>& graph, const void* weights, int weight_bytes, Workers& workers);

}  // namespace loader
