// What the bindings of the GPU part have in common.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "bindings/views.h"
#include "gpu/driver.h"

namespace loader {

// The index of the GPU that a tensor lies on.
inline int device_index(py::handle tensor) {
  const py::object index = tensor.attr("device").attr("index");
  return index.is_none() ? 0 : index.cast<int>();
}

inline gpu::Stream stream_of(StreamHandle stream) { return reinterpret_cast<gpu::Stream>(stream); }

// Calls `f`; says in its error what was done: "<what> failed: ...".
template <typename F>
auto doing(const char* what, const F& f) {
  try {
    return f();
  } catch (const gpu::Error& error) {
    throw std::runtime_error(std::string(what) + " failed: " + error.what());
  }
}

// Device and stream of a launch: `launch_place` of loader/machine/gpu.py.
using LaunchPlace = std::tuple<int, StreamHandle>;

// Calls `launch(device, stream)` with the context of the device as the current one, as `doing` does.
template <typename F>
void launching(const char* what, const LaunchPlace& where, const F& launch) {
  doing(what, [&] {
    const int device = std::get<0>(where);
    const gpu::OnDevice current(device);
    launch(device, stream_of(std::get<1>(where)));
  });
}

}  // namespace loader
