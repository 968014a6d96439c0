// A pool of persistent threads that run the same function at the same time.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace loader {

// `run(f)` calls f(worker) once per worker, worker 0 on the calling thread, and returns when all have
// returned; the first exception is rethrown. One `run` at a time.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads) : num_threads_(std::max(1, num_threads)) {
    for (int i = 1; i < num_threads_; ++i) threads_.emplace_back([this, i] { loop(i); });
  }

  ~ThreadPool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    start_.notify_all();
    for (auto& t : threads_) t.join();
  }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return num_threads_; }

  void run(const std::function<void(int)>& f) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = &f;
      ++round_;
      running_ = num_threads_ - 1;
      error_ = nullptr;
    }
    start_.notify_all();
    call(f, 0);
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return running_ == 0; });
    job_ = nullptr;
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

 private:
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
    for (;;) {
      const std::function<void(int)>* job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        start_.wait(lock, [&] { return stop_ || round_ != seen; });
        if (stop_) return;
        seen = round_;
        job = job_;
      }
      call(*job, worker);
      std::lock_guard<std::mutex> lock(mutex_);
      if (--running_ == 0) done_.notify_one();
    }
  }

  const int num_threads_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const std::function<void(int)>* job_ = nullptr;
  uint64_t round_ = 0;
  int running_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
};

}  // namespace loader
