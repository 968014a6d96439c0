// The layers over tiles of rows with their bindings as a module of the host, with a stand-in for CUDA.
#include <cmath>

#include "device_code.h"
// The stand-in above comes first; what it lacks of these kernels follows.
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
#include "gpu/kernel.h"
#include "layers/cuda/norm.cuh"

namespace loader {
namespace {

struct NormRows;
struct NormGradient;
struct SumTiles;

}  // namespace

namespace gpu {

template <int K>
struct Compiled<NormRows, Int<K>> {
  static constexpr auto* function = norm_rows<K>;
};
template <int K>
struct Compiled<NormGradient, Int<K>> {
  static constexpr auto* function = norm_gradient<K>;
};
template <>
struct Compiled<SumTiles> {
  static constexpr auto* function = sum_tiles;
};

}  // namespace gpu
}  // namespace loader

#include "bindings/layers_cuda.cpp"
#include "layers/cuda/norm.cpp"

PYBIND11_MODULE(layers_on_host, m) {
  on_host::machine.multiprocessors = {2};
  loader::bind_layers_cuda(m);
}
