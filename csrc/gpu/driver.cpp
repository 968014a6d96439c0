#include "gpu/driver.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <mutex>

namespace loader::gpu {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

// The driver, or why there is none.
struct Opened {
  Driver functions{};
  std::string problem;

  Opened() {
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      problem = std::string("there is no NVIDIA driver here (") + kLibrary + " cannot be opened)";
      return;
    }
    const auto find = [&](auto& function, const char* name) {
      void* const found = dlsym(library, name);
      if (!found && problem.empty())
        problem = std::string("the NVIDIA driver is too old: it has no ") + name + "; update it";
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    };
    Driver& f = functions;
    find(f.cuInit, "cuInit");
    find(f.cuDriverGetVersion, "cuDriverGetVersion");
    find(f.cuGetErrorName, "cuGetErrorName");
    find(f.cuGetErrorString, "cuGetErrorString");
    find(f.cuDeviceGetAttribute, "cuDeviceGetAttribute");
    find(f.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    find(f.cuCtxGetCurrent, "cuCtxGetCurrent");
    find(f.cuCtxSetCurrent, "cuCtxSetCurrent");
    find(f.cuModuleLoadData, "cuModuleLoadData");
    find(f.cuModuleUnload, "cuModuleUnload");
    find(f.cuModuleGetFunction, "cuModuleGetFunction");
    find(f.cuFuncGetAttribute, "cuFuncGetAttribute");
    find(f.cuFuncSetAttribute, "cuFuncSetAttribute");
    find(f.cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    find(f.cuLaunchKernel, "cuLaunchKernel");
    find(f.cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel");
    find(f.cuMemsetD8Async, "cuMemsetD8Async");
    find(f.cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
    find(f.cuStreamQuery, "cuStreamQuery");
    find(f.cuStreamWaitEvent, "cuStreamWaitEvent");
    find(f.cuEventCreate, "cuEventCreate");
    find(f.cuEventRecord, "cuEventRecord");
    find(f.cuEventSynchronize, "cuEventSynchronize");
    find(f.cuEventDestroy, "cuEventDestroy_v2");
    find(f.cuMemHostRegister, "cuMemHostRegister_v2");
    find(f.cuMemHostUnregister, "cuMemHostUnregister");
    find(f.cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
    if (!problem.empty()) return;
    if (const Status status = f.cuInit(0); status != kSuccess) {
      const char* text = nullptr;
      f.cuGetErrorString(status, &text);
      problem =
          std::string("the NVIDIA driver cannot be used: ") + (text ? text : std::to_string(status).c_str());
    }
  }
};

// The primary context of a device, kept: torch keeps it as well.
Context primary(int device) {
  static std::array<std::atomic<Context>, kMaxDevices> known{};
  if (device < 0 || device >= kMaxDevices)
    throw std::runtime_error("GPU " + std::to_string(device) + "; this core knows GPUs 0 to " +
                             std::to_string(kMaxDevices - 1));
  Context context = known[static_cast<size_t>(device)].load(std::memory_order_acquire);
  if (!context) {
    check(driver().cuDevicePrimaryCtxRetain(&context, device), "taking a GPU into use");
    known[static_cast<size_t>(device)].store(context, std::memory_order_release);
  }
  return context;
}

}  // namespace

Error::Error(Status status, const std::string& what) : std::runtime_error(what), status_(status) {}

const Driver& driver() {
  static const Opened opened;
  if (!opened.problem.empty()) throw std::runtime_error(opened.problem);
  return opened.functions;
}

std::string explain(Status status) {
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(status, &name);
  driver().cuGetErrorString(status, &text);
  if (!name) return "the driver's error " + std::to_string(status);
  return std::string(text ? text : "") + " (" + name + ")";
}

void check(Status status, const char* what) {
  if (status != kSuccess) throw Error(status, std::string(what) + " failed: " + explain(status));
}

int driver_version() {
  int version = 0;
  check(driver().cuDriverGetVersion(&version), "asking for the driver's version");
  return version;
}

int attribute(int device, Attribute attribute) {
  constexpr size_t kAttributes = 128;
  static std::array<std::array<std::atomic<int>, kAttributes>, kMaxDevices> known{};  // value + 1; 0: not yet
  if (device < 0 || device >= kMaxDevices)
    throw std::runtime_error("there is no GPU " + std::to_string(device));
  auto& place = known[static_cast<size_t>(device)][static_cast<size_t>(attribute)];
  if (const int value = place.load(std::memory_order_relaxed)) return value - 1;
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, static_cast<int>(attribute), device),
        "asking for a GPU's attribute");
  place.store(value + 1, std::memory_order_relaxed);
  return value;
}

OnDevice::OnDevice(int device) {
  const Context wanted = primary(device);
  check(driver().cuCtxGetCurrent(&before_), "asking for the current GPU");
  changed_ = before_ != wanted;
  if (changed_) check(driver().cuCtxSetCurrent(wanted), "choosing a GPU");
}

OnDevice::~OnDevice() {
  // A thread that had none keeps this one: it is what CUDA's runtime would give it.
  if (changed_ && before_) driver().cuCtxSetCurrent(before_);
}

void set_bytes(void* at, int value, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(driver().cuMemsetD8Async(reinterpret_cast<uintptr_t>(at), static_cast<unsigned char>(value), bytes,
                                 stream),
        "clearing GPU memory");
}

}  // namespace loader::gpu
