#include "sampler/cpu/fused.h"
#include "sampler/cpu/fused_scan.h"
#include "sampler/cpu/fused_steps.h"

namespace loader {

template class FusedSamplerOf<HeteroLists<int32_t, int32_t>>;
template class FusedSamplerOf<HeteroLists<int64_t, int32_t>>;
template class FusedSamplerOf<HeteroLists<int64_t, int64_t>>;

}  // namespace loader
