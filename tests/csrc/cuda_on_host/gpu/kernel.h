// Stands in for the core's header of that name: kernels that were compiled with the test.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "gpu/driver.h"
#include "gpu/kernel_names.h"

namespace loader::gpu {

struct Shape {
  unsigned blocks, threads;
  size_t shared;
  Stream stream;
  bool together = false;
};

class Kernel {
 public:
  using Run = std::function<void(const Shape&, void**)>;
  explicit Kernel(Run run) : run(std::move(run)) {}

  int resident_blocks(int device, int, size_t, int, size_t) const {
    return attribute(device, Attribute::kMultiprocessors);
  }
  void prefer_shared(int, int) {}

  const Run run;
};

inline void load(int, std::initializer_list<Kernel*>) {}

inline unsigned blocks_for(int64_t threads, int64_t per_block, const char*) {
  return static_cast<unsigned>((threads + per_block - 1) / per_block);
}

template <typename... Parameters>
void launch(Kernel& kernel, int device, const Shape& shape, const Parameters&... arguments) {
  on_host::Machine& machine = on_host::machine;
  const bool too_many = static_cast<int>(shape.blocks) > attribute(device, Attribute::kMultiprocessors);
  if (machine.launches_until_refused-- == 0 || (shape.together && too_many))
    throw Error(kOutOfResources, "refused");
  ++machine.launches;
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  kernel.run(shape, addresses);
}

// The function of a kernel, by its tag and arguments: `static constexpr auto* function`.
template <typename Tag, typename... Arguments>
struct Compiled;

template <typename... Parameters>
Kernel::Run as_grid(void (*function)(Parameters...)) {
  return [function](const Shape& shape, void** arguments) {
    on_host::run(function, shape.blocks, shape.threads, shape.shared, arguments,
                 std::index_sequence_for<Parameters...>());
  };
}

template <typename Tag, typename... Arguments>
Kernel& kernel() {
  static Kernel one(as_grid(Compiled<Tag, Arguments...>::function));
  return one;
}

}  // namespace loader::gpu
