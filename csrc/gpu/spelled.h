// Types and numbers as kernels' names spell them.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "gpu/narrow.h"

namespace loader {
namespace gpu {

// `text()` of a type that may stand among the template arguments of a kernel.
template <typename T>
struct Spelled;

template <int V>
using Int = std::integral_constant<int, V>;
template <bool V>
using Bool = std::integral_constant<bool, V>;

#define LOADER_SPELLED(TYPE, TEXT)             \
  template <>                                  \
  struct Spelled<TYPE> {                       \
    static std::string text() { return TEXT; } \
  };
LOADER_SPELLED(int32_t, "int32_t")
LOADER_SPELLED(int64_t, "int64_t")
LOADER_SPELLED(float, "float")
LOADER_SPELLED(double, "double")
LOADER_SPELLED(half, "loader::half")
LOADER_SPELLED(bfloat16, "loader::bfloat16")
#undef LOADER_SPELLED

template <int V>
struct Spelled<Int<V>> {
  static std::string text() { return std::to_string(V); }
};
template <bool V>
struct Spelled<Bool<V>> {
  static std::string text() { return V ? "true" : "false"; }
};

// A tag of the kernel NAME, which stands in namespace loader in HEADER, below csrc/. See gpu::kernel.
#define LOADER_KERNEL(TAG, HEADER, NAME)                        \
  struct TAG {                                                  \
    static constexpr const char *header = HEADER, *name = NAME; \
  };

// name<arguments>; only the name if there are none.
template <typename... Arguments>
std::string spelled(const std::string& name) {
  std::string list;
  ((list += (list.empty() ? "" : ", ") + Spelled<Arguments>::text()), ...);
  return list.empty() ? name : name + "<" + list + ">";
}

}  // namespace gpu
}  // namespace loader
