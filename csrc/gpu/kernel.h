// Kernels that are compiled when they are first needed.
//
// A kernel is known by the header that has it and by its name as C++ spells it, template arguments and all.
// What compiles it, and keeps what was compiled, is Python's (loader/kernels): it is asked once per kernel
// and device.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver.h"
#include "gpu/kernel_names.h"

namespace loader::gpu {

class Kernel {
 public:
  // `header`: below csrc/, compiled with the headers that it includes. `name`: of the kernel, with its
  // namespace.
  Kernel(std::string header, std::string name) : header_(std::move(header)), name_(std::move(name)) {}
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const std::string& header() const { return header_; }
  const std::string& name() const { return name_; }

  // The kernel on a device, whose context is the current one. It is compiled if that was not done yet.
  Function on(int device);

  // Thread blocks of `threads` threads, with `shared` bytes of dynamic shared memory each, that are resident
  // at once on the device, at most `per_multiprocessor` on each of its multiprocessors. The driver is asked
  // once for each number of threads and bytes: a launch must not wait for it.
  // `most_declared`: bytes of shared memory that the kernel may declare on top.
  int resident_blocks(int device, int threads, size_t shared, int per_multiprocessor, size_t most_declared);

  // Asks for a share of a multiprocessor's first-level memory as shared memory, in percent; once per device.
  // A hint: a kernel that needs more gets it.
  void prefer_shared(int device, int percent);

 private:
  friend void load(int device, std::initializer_list<Kernel*> kernels);

  struct Fit {
    int threads;
    size_t shared;
    int blocks;  // of a multiprocessor
  };
  struct OnOne {
    std::atomic<Function> function{nullptr};
    size_t shared = 0;  // the most that was asked for
    std::vector<Fit> fits;
    std::atomic<int> carveout{-1};
  };

  const std::string header_, name_;
  std::array<OnOne, kMaxDevices> on_;
  std::mutex mutex_;  // of what is asked of the driver; never held while Python is called
};

// Loads kernels to a device, whose context is the current one; null pointers are passed over. Those that must
// be compiled are compiled at the same time.
void load(int device, std::initializer_list<Kernel*> kernels);

// What was compiled of a kernel: code for the device, and the kernel's name in it.
struct Image {
  std::string code, symbol;
};

// Makes the images of kernels for chips of compute capability major.minor. `refused`: the driver would not
// load the images that were made before, so they are to be made anew. Throws what whoever needs the kernel is
// told.
using Compile = std::function<std::vector<Image>(int major, int minor,
                                                 const std::vector<const Kernel*>& kernels, bool refused)>;
void compile_by(Compile compile);

// How a kernel is launched. `together`: its blocks are all resident at once, so that they may wait for each
// other.
struct Shape {
  unsigned blocks, threads;
  size_t shared;  // bytes of dynamic shared memory
  Stream stream;
  bool together = false;
};

// Thread blocks for this many threads, or parts of work, `per_block` each. Throws std::overflow_error, which
// names `what` they are, if one launch cannot have this many.
unsigned blocks_for(int64_t threads, int64_t per_block, const char* what);

void launch_with(Kernel& kernel, int device, const Shape& shape, void** arguments);

// Launches a kernel on a device, whose context is the current one. `Parameters` are the kernel's own, to be
// given: the compiler cannot compare them with the kernel's.
template <typename... Parameters>
void launch(Kernel& kernel, int device, const Shape& shape, const Parameters&... arguments) {
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  launch_with(kernel, device, shape, addresses);
}

// A kernel that lives as long as the process.
Kernel& lasting_kernel(const char* header, const Spelling& name);

// The kernel of a tag with these template arguments, one for the whole process. A tag has `header` and
// `name`; the arguments are types that have a Spelled.
template <typename Tag, typename... Arguments>
Kernel& kernel() {
  static Kernel& one = lasting_kernel(Tag::header, spelling<Arguments...>(Tag::name));
  return one;
}

}  // namespace loader::gpu
