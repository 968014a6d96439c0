#include "sampler/cpu/trees.h"

namespace loader {

template class TreeSampler<int32_t, int32_t>;
template class TreeSampler<int64_t, int32_t>;
template class TreeSampler<int64_t, int64_t>;

}  // namespace loader
