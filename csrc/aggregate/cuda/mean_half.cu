#include "aggregate/cuda/mean.cuh"

namespace loader {

LOADER_FOR_INDEX_TYPES(LOADER_INSTANTIATE_FORWARD, __half, __half)
LOADER_FOR_INDEX_TYPES(LOADER_INSTANTIATE_BACKWARD, __half)

}  // namespace loader
