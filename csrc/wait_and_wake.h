// Waiting for another thread: a while awake, then asleep.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace loader {

// One step of a loop that waits for another thread.
inline void spin_once() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `ready()`, some tens of microseconds at most; false if that was not enough. To wake a sleeping
// thread takes longer than that, and the phases of a mini-batch follow each other faster.
template <typename Ready>
bool spin_until(const Ready& ready) {
  for (int i = 0; i < 4000; ++i) {
    if (ready()) return true;
    spin_once();
  }
  return ready();
}

// Who waits passes a condition; who makes it true rings. Not a condition variable: threads that wake together
// do not queue for a mutex, and to ring where nobody sleeps is one atomic addition.
class Doorbell {
 public:
  uint32_t count() const { return count_.load(std::memory_order_acquire); }

  template <typename Ready>
  void wait(const Ready& ready) {
    if (spin_until(ready)) return;
    // Whoever rings either sees that somebody sleeps, or has rung before `count` was read here.
    sleeping_.fetch_add(1);
    for (;;) {
      const uint32_t known = count_.load();
      if (ready()) break;
      sleep(known);
    }
    sleeping_.fetch_sub(1);
  }

  // Wakes up to `sleepers` of those that sleep.
  void ring(int sleepers) {
    count_.fetch_add(1);
    if (sleepers > 0 && sleeping_.load() > 0) wake(sleepers);
  }

  int sleepers() const { return sleeping_.load(std::memory_order_relaxed); }

 private:
#if defined(__linux__)
  static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free,
                "the kernel reads it");
  // Until `count_` is no longer `known`, or for no reason.
  void sleep(uint32_t known) { futex(FUTEX_WAIT_PRIVATE, known); }
  void wake(int sleepers) { futex(FUTEX_WAKE_PRIVATE, static_cast<uint32_t>(sleepers)); }
  void futex(int operation, uint32_t value) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&count_), operation, value, nullptr, nullptr, 0);
  }
#else
  void sleep(uint32_t known) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return count_.load() != known; });
  }
  void wake(int) {
    { std::lock_guard<std::mutex> lock(mutex_); }
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
#endif

  std::atomic<uint32_t> count_{0};
  std::atomic<int> sleeping_{0};
};

}  // namespace loader
