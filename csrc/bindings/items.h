// What the bindings of the orders on CPU and GPU have in common.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <limits>
#include <string>

#include "items/permutation.h"

namespace loader {

// Throws ValueError unless all positions lie in [0, num_items).
inline Runs checked_runs(int64_t num_items, int64_t first, int64_t length, int64_t stride, int64_t count) {
  if (num_items < 1 || first < 0 || length < 1 || stride < 0 || count < 0)
    throw pybind11::value_error(
        "num_items and length must be at least 1; first, stride and count at least 0");
  if (num_items > kMostItems)
    throw pybind11::value_error("num_items is " + std::to_string(num_items) + "; it must be at most 2**62");
  using Wide = __int128;  // the position may be beyond 64 bits
  const auto at = [&](int64_t i) { return first + static_cast<Wide>(i / length) * stride + i % length; };
  Wide largest = count > 0 ? at(count - 1) : 0;
  // Runs that overlap: the last one may end before the one ahead of it does.
  if (count >= length) largest = std::max(largest, at(count / length * length - 1));
  if (largest >= num_items) {
    const bool fits = largest <= std::numeric_limits<int64_t>::max();
    throw pybind11::value_error("position " +
                                (fits ? std::to_string(static_cast<int64_t>(largest)) : "2**63 or beyond") +
                                " of an order of " + std::to_string(num_items) + " items");
  }
  return {first, length, stride, count};
}

}  // namespace loader
