// What a captured step does before its layers, with its bindings as a module of the host, with a stand-in for
// CUDA.
#include <cmath>

#include "device_code.h"
// The stand-in above comes first.
#include "gpu/kernel.h"
#include "layout/cuda/hops.cuh"

namespace loader {
namespace {

struct MoveHops;
struct MapEntries;
struct EncodeTimes;

}  // namespace

namespace gpu {

template <>
struct Compiled<MoveHops> {
  static constexpr auto* function = move_hops;
};
template <>
struct Compiled<MapEntries> {
  static constexpr auto* function = map_entries;
};
template <>
struct Compiled<EncodeTimes> {
  static constexpr auto* function = encode_times;
};

}  // namespace gpu
}  // namespace loader

#include "bindings/layout_cuda.cpp"
#include "layout/cuda/hops.cpp"

PYBIND11_MODULE(layout_on_host, m) { loader::bind_layout_cuda(m); }
