// Philox blocks of many lanes at once, in the lanes of the vector unit.
#pragma once

#include <cstdint>

namespace loader {

// Runs one Philox block in each of `lanes` lanes; the counters are (v, hop, index), the words of lane i go to
// words[4 * i ..].
void philox_lanes(int64_t lanes, const uint64_t* v, const uint32_t* hop, const uint32_t* index, uint64_t key,
                  uint32_t* words);

}  // namespace loader
