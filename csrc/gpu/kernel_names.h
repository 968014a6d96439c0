// Types and numbers as kernels' names spell them: constant data, since hundreds of kernels would have code
// each.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "gpu/narrow_floats.h"

namespace loader {
namespace gpu {

// A name with its template arguments, or a number.
struct Spelling {
  const char* name;                  // null of a number
  const Spelling* const* arguments;  // up to a null pointer; null if there are none
  int number = 0;
};

// `text` of a type that may stand among the template arguments of a kernel.
template <typename T>
struct Spelled;

template <typename... Arguments>
struct SpelledList {
  static constexpr const Spelling* all[] = {&Spelled<Arguments>::text..., nullptr};
};

// name<arguments>; only the name if there are none.
template <typename... Arguments>
constexpr Spelling spelling(const char* name) {
  if constexpr (sizeof...(Arguments) == 0)
    return {name, nullptr};
  else
    return {name, SpelledList<Arguments...>::all};
}

std::string spelled(const Spelling& text);

template <int V>
using Int = std::integral_constant<int, V>;
template <bool V>
using Bool = std::integral_constant<bool, V>;

#define LOADER_SPELLED(TYPE, TEXT)                   \
  template <>                                        \
  struct Spelled<TYPE> {                             \
    static constexpr Spelling text = spelling(TEXT); \
  };
LOADER_SPELLED(int32_t, "int32_t")
LOADER_SPELLED(int64_t, "int64_t")
LOADER_SPELLED(float, "float")
LOADER_SPELLED(double, "double")
LOADER_SPELLED(half, "loader::half")
LOADER_SPELLED(bfloat16, "loader::bfloat16")
LOADER_SPELLED(int8, "loader::int8")
LOADER_SPELLED(float8, "loader::float8")
#undef LOADER_SPELLED

template <int V>
struct Spelled<Int<V>> {
  static constexpr Spelling text = {nullptr, nullptr, V};
};
template <bool V>
struct Spelled<Bool<V>> {
  static constexpr Spelling text = spelling(V ? "true" : "false");
};

// A tag of the kernel NAME, which stands in namespace loader in HEADER, below csrc/. See gpu::kernel.
#define LOADER_KERNEL(TAG, HEADER, NAME)                                   \
  struct TAG {                                                             \
    static constexpr const char *header = HEADER, *name = "loader::" NAME; \
  };

}  // namespace gpu
}  // namespace loader
