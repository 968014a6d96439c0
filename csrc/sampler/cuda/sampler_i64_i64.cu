#include "sampler/cuda/launch.cuh"

namespace loader {

template cudaError_t launch_sample(const UniformArgs<int64_t, int64_t>&, Schedule, int, int*, cudaStream_t);

}  // namespace loader
