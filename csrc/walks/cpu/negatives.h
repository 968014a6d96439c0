// Negative samples, drawn by CPU threads.
#pragma once

#include <cstdint>

#include "parallel.h"
#include "walks/negatives.h"

namespace loader {

// out [walkers, count]: row i are the negatives of walker `first_lane` + i.
template <typename N>
void draw_negatives(const Negatives& law, uint64_t first_lane, int64_t walkers, int64_t count, N* out,
                    ThreadPool& pool);

}  // namespace loader
