#include "sampler/cpu/pick_batch.h"

#include "sampler/cpu/wide_clones.h"

namespace loader {

LOADER_WIDE void positions_wide(const Draws& draws, const uint32_t* words, uint32_t degree, uint32_t fanout,
                                bool replace, uint32_t* out) {
  positions_from_words(draws, words, degree, fanout, replace, out);
}

}  // namespace loader
