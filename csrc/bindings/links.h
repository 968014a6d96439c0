// What the bindings of links on CPU and GPU share.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <limits>
#include <string>

#include "links/negatives.h"

namespace loader {

// Raises ValueError unless the core can draw among that many nodes.
inline EndCounts counts_of(int64_t sources, int64_t targets, bool one_type) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  const int64_t wrong = sources < 1 || sources > kMost ? sources : targets;
  if (wrong < 1 || wrong > kMost)
    throw pybind11::value_error("links have an end among " + std::to_string(wrong) +
                                " nodes; negative links are drawn among 1 to " + std::to_string(kMost));
  return {static_cast<uint32_t>(sources), static_cast<uint32_t>(targets), one_type};
}

}  // namespace loader
