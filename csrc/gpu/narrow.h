// The 16-bit floating-point types, as their bits: neither the host's compiler nor one at run time need have
// them.
#pragma once

#include <cstdint>

namespace loader {

struct half {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};

}  // namespace loader
