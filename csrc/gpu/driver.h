// NVIDIA's driver, opened at run time: to build this core takes no CUDA toolkit, and to import it no GPU.
//
// Types and constants are those of the driver's C interface (CUDA Driver API reference manual), declared once
// more. Streams are the same objects that torch and CUDA's runtime know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "gpu/stream.h"

struct CUctx_st;
struct CUevent_st;
struct CUfunc_st;
struct CUmod_st;

namespace loader::gpu {

using Context = CUctx_st*;
using Event = CUevent_st*;
using Function = CUfunc_st*;
using Module = CUmod_st*;
using Status = int;  // CUresult

constexpr Status kSuccess = 0, kInvalidImage = 200, kNoBinaryForGpu = 209, kUnsupportedPtx = 222,
                 kNotFound = 500, kNotReady = 600, kOutOfResources = 701;

constexpr unsigned kEventWithoutTiming = 2;  // CU_EVENT_DISABLE_TIMING

// Of a device (CUdevice_attribute).
enum class Attribute : int {
  kMultiprocessors = 16,
  kMajor = 75,
  kMinor = 76,
  kSharedMemoryPerBlockOptin = 97,
};

// Of a function (CUfunction_attribute).
enum class FunctionAttribute : int { kSharedBytes = 1, kMaxDynamicSharedBytes = 8, kSharedCarveout = 9 };

// What the driver refused, in its words.
class Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& what);
  Status status() const { return status_; }

 private:
  Status status_;
};

// The functions of libcuda.so.1 that are used.
struct Driver {
  Status (*cuInit)(unsigned);
  Status (*cuDriverGetVersion)(int*);
  Status (*cuGetErrorName)(Status, const char**);
  Status (*cuGetErrorString)(Status, const char**);
  Status (*cuDeviceGetAttribute)(int*, int, int);
  Status (*cuDevicePrimaryCtxRetain)(Context*, int);
  Status (*cuCtxGetCurrent)(Context*);
  Status (*cuCtxSetCurrent)(Context);
  Status (*cuModuleLoadData)(Module*, const void*);
  Status (*cuModuleUnload)(Module);
  Status (*cuModuleGetFunction)(Function*, Module, const char*);
  Status (*cuFuncGetAttribute)(int*, int, Function);
  Status (*cuFuncSetAttribute)(Function, int, int);
  Status (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int*, Function, int, size_t);
  Status (*cuLaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           Stream, void**, void**);
  Status (*cuLaunchCooperativeKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                      unsigned, Stream, void**);
  Status (*cuMemsetD8Async)(uintptr_t, unsigned char, size_t, Stream);
  Status (*cuMemcpyHtoDAsync)(uintptr_t, const void*, size_t, Stream);
  Status (*cuStreamQuery)(Stream);
  Status (*cuStreamWaitEvent)(Stream, Event, unsigned);
  Status (*cuEventCreate)(Event*, unsigned);
  Status (*cuEventRecord)(Event, Stream);
  Status (*cuEventSynchronize)(Event);
  Status (*cuEventDestroy)(Event);
  Status (*cuMemHostRegister)(void*, size_t, unsigned);
  Status (*cuMemHostUnregister)(void*);
  Status (*cuMemHostGetDevicePointer)(uintptr_t*, void*, unsigned);
};

// Opens the driver when it is first asked for. Throws std::runtime_error, each time, if there is none.
const Driver& driver();

// Throws Error unless `status` is success; `what` says in the error what was tried.
void check(Status status, const char* what);
std::string explain(Status status);

// The CUDA version that the driver is for, as 1000 * major + 10 * minor.
int driver_version();

constexpr int kMaxDevices = 64;

// An attribute of a device, asked for once.
int attribute(int device, Attribute attribute);

// Makes a device's primary context, which is torch's, the current one of this thread while it lives. A thread
// that never called CUDA has none, and one that did may have another device's.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  Context before_ = nullptr;
  bool changed_ = false;
};

// Sets bytes of device memory, in the order of the stream.
void set_bytes(void* at, int value, size_t bytes, Stream stream);

}  // namespace loader::gpu
