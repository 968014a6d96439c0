#include "sampler/cpu/hopwise.h"

namespace loader {

template class HopwiseSamplerOf<TypedLists<int32_t, int32_t>>;
template class HopwiseSamplerOf<TypedLists<int64_t, int32_t>>;
template class HopwiseSamplerOf<TypedLists<int64_t, int64_t>>;

}  // namespace loader
