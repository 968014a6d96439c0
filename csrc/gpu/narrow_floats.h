// The floating-point types of 16 and 8 bits, as their bits: neither the host's compiler nor one at run time
// need have them. And numbers of 8 bits that are elements of a row, see scaled_codes.h.
#pragma once

#include <cstdint>

namespace loader {

struct half {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};
struct int8 {
  uint8_t bits;  // two's complement
};
struct float8 {
  uint8_t bits;  // e4m3fn: a sign, 4 bits of the exponent, 3 of the mantissa; no infinity
};

}  // namespace loader
