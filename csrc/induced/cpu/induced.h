// Finds the edges among given vertices on the CPU; see induced/edges_between.h.
#pragma once

#include <cstdint>
#include <vector>

#include "induced/edges_between.h"
#include "parallel.h"

namespace loader {

// The edges that one part of the asked lists has.
struct InducedPart {
  std::vector<int64_t> sources;  // places among the given vertices
  std::vector<int64_t> rows;     // which of the asked lists
  std::vector<int64_t> edges;    // places in the lists
};

struct InducedFound {
  std::vector<InducedPart> parts;
  int64_t repeated = -1;  // the least key that is given twice; then there are no parts
};

// Vertices and numbers of lists are in range. Throws std::invalid_argument if a list is none of `num_edges`
// entries.
template <typename P, typename N>
InducedFound induced_on_cpu(const InducedAsked<P, N>& asked, int64_t num_edges, Workers& workers);

}  // namespace loader
