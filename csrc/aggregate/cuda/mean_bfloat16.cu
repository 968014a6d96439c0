#include "aggregate/cuda/mean.cuh"

namespace loader {

LOADER_FOR_INDEX_TYPES(LOADER_INSTANTIATE_FORWARD, __nv_bfloat16, __nv_bfloat16)
LOADER_FOR_INDEX_TYPES(LOADER_INSTANTIATE_BACKWARD, __nv_bfloat16)

}  // namespace loader
