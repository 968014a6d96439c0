#include "sampler/cpu/hopwise.h"

namespace loader {

template class HopwiseSamplerOf<HeteroLists<int32_t, int32_t>>;
template class HopwiseSamplerOf<HeteroLists<int64_t, int32_t>>;
template class HopwiseSamplerOf<HeteroLists<int64_t, int64_t>>;

}  // namespace loader
