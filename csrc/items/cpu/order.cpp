#include "items/order.h"

namespace loader {

void items_at(const Permutation& order, const Runs& runs, int64_t* out) {
  for (int64_t i = 0; i < runs.count; ++i) out[i] = order(runs.at(i));
}

}  // namespace loader
