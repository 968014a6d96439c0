#include "sampler/cpu/hopwise.h"

namespace loader {

template class HopwiseSamplerOf<PlainLists<int32_t, int32_t>>;
template class HopwiseSamplerOf<PlainLists<int64_t, int32_t>>;
template class HopwiseSamplerOf<PlainLists<int64_t, int64_t>>;

}  // namespace loader
