// Stands in for the core's header of that name: a driver whose GPUs are the host's threads.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "device_code.h"
#include "gpu/stream.h"

namespace loader::gpu {

using Status = int;
constexpr Status kSuccess = 0, kNotReady = 600, kOutOfResources = 701;

enum class Attribute : int { kMultiprocessors, kMajor, kSharedMemoryPerBlockOptin };

class Error : public std::runtime_error {
 public:
  Error(Status, const std::string& what) : std::runtime_error(what) {}
};

struct Driver {
  Status (*cuMemHostRegister)(void*, size_t, unsigned) = [](void*, size_t, unsigned) { return kSuccess; };
  Status (*cuMemHostUnregister)(void*) = [](void*) { return kSuccess; };
  Status (*cuMemHostGetDevicePointer)(uintptr_t*, void*, unsigned) = [](uintptr_t* found, void* at,
                                                                        unsigned) {
    *found = reinterpret_cast<uintptr_t>(at);
    return kSuccess;
  };
  Status (*cuStreamQuery)(Stream) = [](Stream) { return kSuccess; };
};

inline const Driver& driver() {
  static const Driver one;
  return one;
}

inline void check(Status status, const char* what) {
  if (status != kSuccess) throw Error(status, what);
}

inline int attribute(int device, Attribute attribute) {
  if (attribute == Attribute::kMajor) return 9;
  return attribute == Attribute::kMultiprocessors
             ? on_host::machine.multiprocessors[static_cast<size_t>(device)]
             : 1 << 20;
}

inline void set_bytes(void* at, int value, size_t bytes, Stream) { std::memset(at, value, bytes); }

struct OnDevice {
  explicit OnDevice(int) {}
};

}  // namespace loader::gpu
