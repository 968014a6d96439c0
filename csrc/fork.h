// What a forked child must put right: only the thread that forked lives on in it, so a lock that another
// thread held would never be released, and a pool would wait for threads that are gone.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace loader {

// Functions that are called around a fork, for as long as the hook lives: `before` and `after_in_parent` in
// the parent, `in_child` in the child. A class makes its hook its last member: the functions then see the
// whole object.
class ForkHook {
 public:
  struct Functions {
    std::function<void()> before, after_in_parent, in_child;
  };

  explicit ForkHook(Functions functions) : functions_(std::move(functions)) {
    Registry& all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.hooks.push_back(this);
  }

  ~ForkHook() {
    Registry& all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    for (ForkHook*& hook : all.hooks)
      if (hook == this) {
        hook = all.hooks.back();
        all.hooks.pop_back();
        return;
      }
  }

  ForkHook(const ForkHook&) = delete;
  ForkHook& operator=(const ForkHook&) = delete;

 private:
  struct Registry {
    std::mutex mutex;  // held while the process forks
    std::vector<ForkHook*> hooks;
  };

  // Never destroyed: the process may fork while it ends.
  static Registry& registry() {
    static Registry* const instance = [] {
      pthread_atfork(
          [] {
            registry().mutex.lock();
            call(&Functions::before);
          },
          [] {
            call(&Functions::after_in_parent);
            registry().mutex.unlock();
          },
          [] {
            call(&Functions::in_child);
            registry().mutex.unlock();
          });
      return new Registry;
    }();
    return *instance;
  }

  static void call(std::function<void()> Functions::*which) {
    for (ForkHook* hook : registry().hooks)
      if (const auto& f = hook->functions_.*which) f();
  }

  const Functions functions_;
};

// Sets a flag while it lives: somebody is at work with what a forked child then leaves alone.
struct Busy {
  explicit Busy(bool& flag) : flag(flag) { flag = true; }
  ~Busy() { flag = false; }
  bool& flag;
};

// A mutex that is held for a moment, and under which no other lock is taken. A fork waits for it, so a child
// finds it free and what it guards whole.
class BriefMutex {
 public:
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  ForkHook hook_{{[this] { mutex_.lock(); }, [this] { mutex_.unlock(); }, [this] { mutex_.unlock(); }}};
};

// A mutex that may be held for long. A child gets a new one, which is free; it must not rely on what a thread
// that is gone was doing under it.
class LongMutex {
 public:
  void lock() { mutex_->lock(); }
  bool try_lock() { return mutex_->try_lock(); }
  void unlock() { mutex_->unlock(); }

 private:
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  ForkHook hook_{{{}, {}, [this] {
                    static_cast<void>(mutex_.release());  // a locked mutex may not be destroyed
                    mutex_ = std::make_unique<std::mutex>();
                  }}};
};

}  // namespace loader
