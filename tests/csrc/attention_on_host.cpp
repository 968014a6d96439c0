// Attention over rows with its bindings as a module of the host, with a stand-in for CUDA.
#include <cmath>

#include "device_code.h"
// The stand-in above comes first; what it lacks of these kernels follows.
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
#include "attention/cuda/attend.cuh"
#include "gpu/kernel.h"

namespace loader {
namespace {

struct AttendRows;
struct AttendRowsGradient;
struct AttendSourceRows;

}  // namespace

namespace gpu {

template <typename T>
struct Compiled<AttendRows, T> {
  static constexpr auto* function = attend_rows<T>;
};
template <typename T>
struct Compiled<AttendRowsGradient, T> {
  static constexpr auto* function = attend_gradient<T>;
};
template <typename T>
struct Compiled<AttendSourceRows, T> {
  static constexpr auto* function = attend_sources<T>;
};

}  // namespace gpu
}  // namespace loader

#include "attention/cuda/attend.cpp"
#include "bindings/attention_cuda.cpp"

PYBIND11_MODULE(attention_on_host, m) {
  on_host::machine.multiprocessors = {2};
  loader::bind_attention_cuda(m);
}
