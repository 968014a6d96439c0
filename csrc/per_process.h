// What a process has to make for itself. Threads do not survive a fork, and a lock that another thread held
// then stays locked in the child for ever.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define LOADER_HAS_FORK
#endif

namespace loader {

// How many forks lie between the first process and this one. Process ids would not do: they are used again.
inline std::atomic<uint64_t>& fork_depth() {
  static std::atomic<uint64_t> depth{0};
#ifdef LOADER_HAS_FORK
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { depth.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);  // it fails where there is no memory, of which more would be said soon
#endif
  return depth;
}

// A T, which a forked child makes anew at its first use. The parent's is neither used nor destroyed there:
// its memory, which a child shares with the parent, stays taken. Safe to call from any thread; nothing is
// locked.
template <typename T>
class PerProcess {
 public:
  // `make` is called now, and once in each forked child that uses the value.
  explicit PerProcess(std::function<std::unique_ptr<T>()> make)
      : make_(std::move(make)), held_(new Held{fork_depth().load(), make_()}) {}

  ~PerProcess() {
    Held* const held = held_.load();
    if (held->depth == fork_depth().load()) delete held;
  }

  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& get() const {
    const uint64_t depth = fork_depth().load(std::memory_order_relaxed);
    Held* held = held_.load(std::memory_order_acquire);
    if (held->depth == depth) return *held->value;
    std::unique_ptr<Held> own(new Held{depth, make_()});
    if (held_.compare_exchange_strong(held, own.get(), std::memory_order_acq_rel))
      return *own.release()->value;
    return *held->value;  // another thread of the child was first
  }

 private:
  struct Held {
    uint64_t depth;
    std::unique_ptr<T> value;
  };

  const std::function<std::unique_ptr<T>()> make_;
  mutable std::atomic<Held*> held_;
};

}  // namespace loader
