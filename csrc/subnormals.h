// Arithmetic with subnormal numbers, whatever mode a thread is in.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace loader {

// While it lives, its thread computes with subnormal numbers, as IEEE 754 and a GPU do. A caller's thread may
// take them as zeros (`torch.set_flush_denormal`), and threads begin as the one that made them: what is
// picked by weight would depend on which thread picks it.
class WithSubnormals {
 public:
  WithSubnormals() : before_(mode()) {
    if (before_ & kFlush) set_mode(before_ & ~kFlush);
  }
  ~WithSubnormals() {
    if (before_ & kFlush) set_mode(before_);
  }
  WithSubnormals(const WithSubnormals&) = delete;
  WithSubnormals& operator=(const WithSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  using Mode = unsigned;
  static constexpr Mode kFlush = 0x8040;  // of results (FTZ), and of what is read (DAZ)
  static Mode mode() { return _mm_getcsr(); }
  static void set_mode(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kFlush = Mode{1} << 24;  // FZ
  static Mode mode() {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set_mode(Mode mode) { asm volatile("msr fpcr, %0" ::"r"(mode) : "memory"); }
#else
  using Mode = unsigned;
  static constexpr Mode kFlush = 0;
  static Mode mode() { return 0; }
  static void set_mode(Mode) {}
#endif

  const Mode before_;
};

}  // namespace loader
