#include "aggregate/cuda/mean.cuh"

namespace loader {

LOADER_FOR_INDEX_TYPES(LOADER_INSTANTIATE_FORWARD, double, double)
LOADER_FOR_INDEX_TYPES(LOADER_INSTANTIATE_BACKWARD, double)

}  // namespace loader
