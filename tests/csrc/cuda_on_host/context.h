// Stacks that a thread goes to and fro between.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef __x86_64__
#include <ucontext.h>
#endif

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace on_host {

#ifdef __x86_64__
// Pushes the registers that a call keeps, stores the end of the stack in `*from`, and goes on at `to`, the
// end of another one. swapcontext does the same, and asks the system for the masked signals twice each time.
__attribute__((naked, noinline)) inline void switch_stacks(void** /*from: rdi*/, void* /*to: rsi*/) {
  asm volatile(
      "pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15;"
      "movq %rsp, (%rdi); movq %rsi, %rsp;"
      "popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret");
}
#endif

// The thread's own stack, or after prepare() a stack of its own on which a function begins.
class Context {
 public:
  // `entry` does not return: it ends by leaving.
  void prepare(char* stack, size_t bytes, void (*entry)()) {
    entry_ = entry;
    bottom_ = stack;
    bytes_ = bytes;
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(stack, bytes);  // functions on it were left, and have not returned
#endif
#ifdef __x86_64__
    const uintptr_t end = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t{15};
    void** const top =
        reinterpret_cast<void**>(end) - 8;  // six registers, begin, and where that would return to
    for (int i = 0; i < 8; ++i) top[i] = nullptr;
    top[6] = reinterpret_cast<void*>(&Context::begin);
    end_ = top;
#else
    getcontext(&saved_);
    saved_.uc_stack.ss_sp = stack;
    saved_.uc_stack.ss_size = bytes;
    saved_.uc_link = nullptr;
    makecontext(&saved_, &Context::begin, 0);
#endif
  }

  // Goes on with `to`; returns when this one is gone on with.
  void leave(Context& to) {
    last_left = this;
    entered = &to;
#ifdef __SANITIZE_ADDRESS__
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, to.bottom_, to.bytes_);
#else
    void* const fake = nullptr;
#endif
#ifdef __x86_64__
    switch_stacks(&end_, to.end_);
#else
    swapcontext(&saved_, &to.saved_);
#endif
    arrive(fake);
  }

 private:
  static void begin() {
    arrive(nullptr);
    entered->entry_();
  }

  // Tells the sanitizer, and learns from it where the stack lies that was left.
  static void arrive([[maybe_unused]] void* fake) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, &last_left->bottom_, &last_left->bytes_);
#endif
  }

  static thread_local Context *last_left, *entered;

#ifdef __x86_64__
  void* end_ = nullptr;
#else
  ucontext_t saved_;
#endif
  void (*entry_)() = nullptr;
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
};

inline thread_local Context* Context::last_left = nullptr;
inline thread_local Context* Context::entered = nullptr;

}  // namespace on_host
