// What the bindings of the orders on CPU and GPU have in common.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "items/permutation.h"

namespace loader {

// Throws ValueError unless all positions lie in [0, num_items).
inline Runs checked_runs(int64_t num_items, int64_t first, int64_t length, int64_t stride, int64_t count) {
  const Runs runs{first, length, stride, count};
  if (num_items < 1 || first < 0 || length < 1 || stride < 0 || count < 0)
    throw pybind11::value_error(
        "num_items and length must be at least 1; first, stride and count at least 0");
  if (count > 0 && (runs.at(count - 1) >= num_items || first + length > num_items + length - 1))
    throw pybind11::value_error("position " + std::to_string(runs.at(count - 1)) + " of an order of " +
                                std::to_string(num_items) + " items");
  return runs;
}

}  // namespace loader
