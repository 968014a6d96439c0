// The items at some positions of an epoch's order.
#pragma once

#include <cstdint>

#include "items/permutation.h"

namespace loader {

// out[i] = the item at position runs.at(i), for 0 <= i < runs.count.
void items_at(const Permutation& order, const Runs& runs, int64_t* out);

}  // namespace loader
