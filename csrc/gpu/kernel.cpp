#include "gpu/kernel.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace loader::gpu {
namespace {

Compile& compiler() {
  static Compile compile;
  return compile;
}

bool is_of_the_image(Status status) {
  return status == kInvalidImage || status == kNoBinaryForGpu || status == kUnsupportedPtx ||
         status == kNotFound;
}

// Loads an image for as long as the process lives. False if the driver would not have it.
bool load_image(const Image& image, Function* function, Status* status) {
  const Driver& cuda = driver();
  Module module = nullptr;
  *status = cuda.cuModuleLoadData(&module, image.code.data());
  if (*status != kSuccess) return false;
  *status = cuda.cuModuleGetFunction(function, module, image.symbol.c_str());
  if (*status == kSuccess) return true;
  cuda.cuModuleUnload(module);
  return false;
}

}  // namespace

std::string spelled(const Spelling& text) {
  if (!text.name) return std::to_string(text.number);
  std::string all = text.name;
  if (!text.arguments) return all;
  const char* before = "<";
  for (const Spelling* const* argument = text.arguments; *argument; ++argument, before = ", ")
    all += before + spelled(**argument);
  return all + ">";
}

Kernel& lasting_kernel(const char* header, const Spelling& name) {
  return *new Kernel(header, spelled(name));
}

void compile_by(Compile compile) { compiler() = std::move(compile); }

void load(int device, std::initializer_list<Kernel*> kernels) {
  const auto at = static_cast<size_t>(device);
  std::vector<Kernel*> missing;
  for (Kernel* const kernel : kernels)
    if (kernel && !kernel->on_[at].function.load(std::memory_order_acquire) &&
        std::find(missing.begin(), missing.end(), kernel) == missing.end())
      missing.push_back(kernel);
  if (missing.empty()) return;
  if (!compiler()) throw std::runtime_error("no compiler of kernels is set; import loader.kernels");
  const int major = attribute(device, Attribute::kMajor), minor = attribute(device, Attribute::kMinor);
  // Two threads may do the same work here: the later one's module stays loaded, unused.
  const std::vector<Image> images = compiler()(major, minor, {missing.begin(), missing.end()}, false);
  for (size_t i = 0; i < missing.size(); ++i) {
    Function function = nullptr;
    Status status = kSuccess;
    if (!load_image(images[i], &function, &status)) {
      if (!is_of_the_image(status)) check(status, "loading a kernel");
      // A damaged file, or code of another driver's time.
      const std::vector<Image> anew = compiler()(major, minor, {missing[i]}, true);
      if (!load_image(anew[0], &function, &status))
        throw Error(status, "the driver does not load " + missing[i]->name() + ": " + explain(status));
    }
    missing[i]->on_[at].function.store(function, std::memory_order_release);
  }
}

Function Kernel::on(int device) {
  auto& place = on_[static_cast<size_t>(device)].function;
  if (const Function function = place.load(std::memory_order_acquire)) return function;
  load(device, {this});
  return place.load(std::memory_order_acquire);
}

int Kernel::resident_blocks(int device, int threads, size_t shared, int per_multiprocessor,
                            size_t most_declared) {
  const Function function = on(device);
  OnOne& known = on_[static_cast<size_t>(device)];
  const Driver& cuda = driver();
  const auto blocks_of = [&](int fit) {
    return std::min(fit, per_multiprocessor) * attribute(device, Attribute::kMultiprocessors);
  };
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Fit& fit : known.fits)
    if (fit.threads == threads && fit.shared == shared) return blocks_of(fit.blocks);
  int declared = 0, fit = 0;
  check(cuda.cuFuncGetAttribute(&declared, static_cast<int>(FunctionAttribute::kSharedBytes), function),
        "asking for a kernel's shared memory");
  if (static_cast<size_t>(declared) > most_declared)
    throw Error(kOutOfResources, name_ + " declares " + std::to_string(declared) +
                                     " bytes of shared memory; plans count on " +
                                     std::to_string(most_declared));
  if (shared >= known.shared) {  // others may ask for more: the attribute is never made less
    check(cuda.cuFuncSetAttribute(function, static_cast<int>(FunctionAttribute::kMaxDynamicSharedBytes),
                                  static_cast<int>(shared)),
          "asking for a kernel's shared memory");
    known.shared = shared;
  }
  check(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(&fit, function, threads, shared),
        "asking for a kernel's occupancy");
  if (fit == 0)
    throw Error(kOutOfResources,
                name_ + " does not fit this GPU with " + std::to_string(shared) + " bytes of shared memory");
  known.fits.push_back({threads, shared, fit});
  return blocks_of(fit);
}

void Kernel::prefer_shared(int device, int percent) {
  OnOne& known = on_[static_cast<size_t>(device)];
  if (known.carveout.load(std::memory_order_acquire) == percent) return;
  check(
      driver().cuFuncSetAttribute(on(device), static_cast<int>(FunctionAttribute::kSharedCarveout), percent),
      "asking for a kernel's share of shared memory");
  known.carveout.store(percent, std::memory_order_release);
}

unsigned blocks_for(int64_t threads, int64_t per_block, const char* what) {
  const int64_t blocks = (threads + per_block - 1) / per_block;
  if (blocks > INT32_MAX)
    throw std::overflow_error(std::to_string(threads) + " " + what + " are too many for one launch");
  return static_cast<unsigned>(blocks);
}

void launch_with(Kernel& kernel, int device, const Shape& shape, void** arguments) {
  const Function function = kernel.on(device);
  const Driver& cuda = driver();
  const Status status =
      shape.together
          ? cuda.cuLaunchCooperativeKernel(function, shape.blocks, 1, 1, shape.threads, 1, 1,
                                           static_cast<unsigned>(shape.shared), shape.stream, arguments)
          : cuda.cuLaunchKernel(function, shape.blocks, 1, 1, shape.threads, 1, 1,
                                static_cast<unsigned>(shape.shared), shape.stream, arguments, nullptr);
  if (status != kSuccess) throw Error(status, explain(status));
}

}  // namespace loader::gpu
