// What the bindings of the walks on CPU and GPU have in common.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "walks/walk.h"

namespace loader {

// back, common and far, see WalkRules; none: first order.
using Acceptance = std::optional<std::tuple<uint32_t, uint32_t, uint32_t>>;

inline WalkRules checked_rules(uint64_t key, uint64_t stop_below, uint64_t home_below,
                               const Acceptance& accept) {
  if (stop_below > home_below || home_below > uint64_t{1} << 32)
    throw pybind11::value_error("stop_below is " + std::to_string(stop_below) + " and home_below " +
                                std::to_string(home_below) + "; they must rise and be at most 2**32");
  WalkRules rules{key, stop_below, home_below, 0, 0, 0};
  if (accept) {
    std::tie(rules.back, rules.common, rules.far) = *accept;
    if (rules.back != UINT32_MAX && rules.common != UINT32_MAX && rules.far != UINT32_MAX)
      throw pybind11::value_error("one of the thresholds of acceptance must be 2**32 - 1");
  }
  return rules;
}

inline uint32_t checked_length(int64_t length) {
  if (length < 0 || length > kMaxWalkLength)
    throw pybind11::value_error("walk_length is " + std::to_string(length) + "; it must be 0 to " +
                                std::to_string(kMaxWalkLength));
  return static_cast<uint32_t>(length);
}

// Throws unless `count` vertices may be drawn at random for each of the walkers.
inline void check_negatives(int64_t num_nodes, int64_t walkers, int64_t count) {
  if (num_nodes > int64_t{UINT32_MAX})
    throw pybind11::value_error("the graph has " + std::to_string(num_nodes) +
                                " vertices; negatives are drawn from at most " + std::to_string(UINT32_MAX));
  if (walkers < 0 || count < 0 || count > int64_t{1} << 31)
    throw pybind11::value_error("there are " + std::to_string(count) + " negatives of each of " +
                                std::to_string(walkers) + " walkers; they must be 0 to 2**31");
  if (num_nodes == 0 && walkers * count > 0) throw pybind11::value_error("the graph has no vertices");
}

// The groups of edges whose turn it is, one step after the other.
inline void check_path(const std::vector<int64_t>& path, int64_t groups) {
  if (path.empty() != (groups == 0))
    throw pybind11::value_error("a metapath needs lists in groups, and they a metapath");
  if (path.size() > kMaxMetapath)
    throw pybind11::value_error("the metapath has " + std::to_string(path.size()) + " types; at most " +
                                std::to_string(kMaxMetapath) + " are possible");
  for (const int64_t group : path)
    if (group < 0 || group >= groups || group > UINT8_MAX)
      throw pybind11::value_error("the metapath names group " + std::to_string(group) + " of " +
                                  std::to_string(groups));
}

}  // namespace loader
