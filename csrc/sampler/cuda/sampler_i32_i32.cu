#include "sampler/cuda/launch.cuh"

namespace loader {

template cudaError_t launch_sample(const UniformArgs<int32_t, int32_t>&, Schedule, int, int*, cudaStream_t);

}  // namespace loader
