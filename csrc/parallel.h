// A pool of persistent threads that run the same function at the same time.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

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

// `run(f)` calls f(worker) once per worker, worker 0 on the calling thread, and returns when all have
// returned; the first exception is rethrown. One `run` at a time.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads) : num_threads_(std::max(1, num_threads)) {
    try {
      for (int i = 1; i < num_threads_; ++i) threads_.emplace_back([this, i] { loop(i); });
    } catch (...) {  // the machine gives no more threads: no destructor will run
      join();
      throw;
    }
  }

  ~ThreadPool() { join(); }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return num_threads_; }

  void run(const std::function<void(int)>& f) {
    error_ = nullptr;
    if (num_threads_ > 1) {
      job_ = &f;
      running_.store(num_threads_ - 1, std::memory_order_relaxed);
      bool wake;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        round_.fetch_add(1, std::memory_order_release);
        wake = sleeping_ > 0;
      }
      if (wake) start_.notify_all();
    }
    call(f, 0);
    const auto done = [this] { return running_.load(std::memory_order_acquire) == 0; };
    if (num_threads_ > 1 && !spin_until(done)) {
      std::unique_lock<std::mutex> lock(mutex_);
      done_.wait(lock, done);
    }
    if (error_) std::rethrow_exception(error_);
  }

  // f(begin, end) over [0, n), a contiguous share per worker.
  void split(int64_t n, const std::function<void(int64_t, int64_t)>& f) {
    if (num_threads_ == 1 || n < 2) return f(0, n);
    run([&](int worker) {
      const int64_t begin = n * worker / num_threads_, end = n * (worker + 1) / num_threads_;
      if (begin < end) f(begin, end);
    });
  }

  // f(begin, end) over [0, n) in parts of `part`, each taken by a worker that is free: one that other threads
  // keep from its processor does not hold up the rest.
  void share(int64_t n, int64_t part, const std::function<void(int64_t, int64_t)>& f) {
    if (num_threads_ == 1 || n <= part) return f(0, n);
    std::atomic<int64_t> next{0};
    run([&](int) {
      for (int64_t begin; (begin = next.fetch_add(part, std::memory_order_relaxed)) < n;)
        f(begin, std::min(begin + part, n));
    });
  }

 private:
  void join() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_.store(true, std::memory_order_release);
    }
    start_.notify_all();
    for (auto& t : threads_) t.join();
  }

  void call(const std::function<void(int)>& f, int worker) {
    try {
      f(worker);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }

  void loop(int worker) {
    uint64_t seen = 0;
    const auto called = [&] {
      return round_.load(std::memory_order_acquire) != seen || stop_.load(std::memory_order_acquire);
    };
    for (;;) {
      if (!spin_until(called)) {
        std::unique_lock<std::mutex> lock(mutex_);
        ++sleeping_;
        start_.wait(lock, called);
        --sleeping_;
      }
      if (stop_.load(std::memory_order_acquire)) return;
      seen = round_.load(std::memory_order_acquire);
      call(*job_, worker);
      if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::lock_guard<std::mutex> lock(mutex_);  // `run` may be about to sleep
        done_.notify_one();
      }
    }
  }

  const int num_threads_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const std::function<void(int)>* job_ = nullptr;
  std::atomic<uint64_t> round_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
  int sleeping_ = 0;
  std::exception_ptr error_;
};

}  // namespace loader
