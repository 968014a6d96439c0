// A pool of persistent threads that share out the parts of a piece of work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "fork.h"
#include "subnormals.h"
#include "wait_and_wake.h"

namespace loader {

constexpr int kMaxThreads = 1024;

// Throws unless a pool can have `num_threads` threads.
inline void check_num_threads(int64_t num_threads) {
  const std::string is = "num_threads is " + std::to_string(num_threads) + "; it must be ";
  if (num_threads < 1) throw std::invalid_argument(is + "at least 1");
  if (num_threads > kMaxThreads) throw std::invalid_argument(is + "at most " + std::to_string(kMaxThreads));
}

constexpr int64_t kMaxParts = 0xffff;

inline void check_parts(int64_t parts) {
  if (parts > kMaxParts) throw std::invalid_argument("work in " + std::to_string(parts) + " parts");
}

// Who a piece of work is shared out to.
class Workers {
 public:
  using Function = std::function<void(int part, int worker)>;

  virtual ~Workers() = default;

  virtual int size() const = 0;

  // The worker that takes all parts unless others have nothing to do; -1 where all take their share.
  virtual int owner() const = 0;

  // f(part, worker) for each part in [0, parts), parts in any order; `worker` < size() names the thread.
  // Rethrows the first exception, after all parts were called.
  virtual void each(int64_t parts, const Function& f) = 0;

  // Wakes up to `helpers` threads for calls that follow within microseconds.
  virtual void wake(int /*helpers*/) {}

  // f(begin, end) over [0, n), a contiguous share per thread.
  void split(int64_t n, const std::function<void(int64_t, int64_t)>& f) {
    const int shares = size();
    if (shares == 1 || n < 2) return f(0, n);
    each(shares, [&](int share, int) {
      const int64_t begin = n * share / shares, end = n * (share + 1) / shares;
      if (begin < end) f(begin, end);
    });
  }

  // f(begin, end) over [0, n) in parts of at least `part`.
  void share(int64_t n, int64_t part, const std::function<void(int64_t, int64_t)>& f) {
    if (size() == 1 || n <= part) return f(0, n);
    part = std::max(part, n / kMaxParts + 1);
    each((n + part - 1) / part, [&](int index, int) { f(part * index, std::min(part * (index + 1), n)); });
  }
};

// A piece of work in parts: one thread opens it and waits for it, any number take parts of it.
class Round {
 public:
  using Function = Workers::Function;

  // Until `wait` has returned, `f` stays, and there is no other round.
  void open(uint32_t parts, const Function& f) {
    job_ = &f;
    error_ = nullptr;
    left_.store(static_cast<int>(parts), std::memory_order_relaxed);
    ticket_.store(uint64_t{++number_} << 32 | parts << 16, std::memory_order_release);
  }

  // Whether there are parts that nobody has taken.
  bool is_open() const {
    const uint64_t now = ticket_.load(std::memory_order_acquire);
    return (now & 0xffff) < (now >> 16 & 0xffff);
  }

  // Takes parts until there is none left. A part that was taken keeps the round from ending, so `job_` is the
  // round's own.
  void work(int worker) {
    int finished = 0;
    uint64_t now = ticket_.load(std::memory_order_acquire);
    for (;;) {
      const auto next = static_cast<uint32_t>(now & 0xffff),
                 parts = static_cast<uint32_t>(now >> 16 & 0xffff);
      if (next >= parts) break;
      if (!ticket_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      try {
        (*job_)(static_cast<int>(next), worker);
      } catch (...) {
        std::lock_guard<std::mutex> lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
      }
      ++finished;
      now = ticket_.load(std::memory_order_acquire);
    }
    if (finished && left_.fetch_sub(finished, std::memory_order_acq_rel) == finished) done_.ring(1);
  }

  // Waits until all parts are done; rethrows the first exception.
  void wait() {
    done_.wait([this] { return left_.load(std::memory_order_acquire) == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  alignas(128) std::atomic<uint64_t> ticket_{0};  // number << 32 | parts << 16 | parts taken
  alignas(64) std::atomic<int> left_{0};          // parts that are not done
  alignas(64) Doorbell done_;
  const Function* job_ = nullptr;
  uint32_t number_ = 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

// The thread that calls takes parts of the work at once; the pool's own threads help as soon as they are
// awake. Nobody waits for a thread that has not come yet: when all parts are done, the call returns. So
// little work costs little, and a thread that others keep from its processor does not hold up the rest.
//
// One call at a time. Threads start with the first call; after a fork, the child starts its own.
class ThreadPool : public Workers {
 public:
  explicit ThreadPool(int num_threads) : num_threads_(num_threads) { check_num_threads(num_threads); }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const override { return num_threads_; }
  int owner() const override { return num_threads_ == 1 ? 0 : -1; }

  // Worker 0 is the caller's thread.
  void each(int64_t parts, const Function& f) override {
    check_parts(parts);
    if (num_threads_ == 1 || parts < 2) {
      std::exception_ptr error;
      for (int part = 0; part < parts; ++part) {
        try {
          f(part, 0);
        } catch (...) {
          if (!error) error = std::current_exception();
        }
      }
      if (error) std::rethrow_exception(error);
      return;
    }
    if (!team_) team_ = std::make_unique<Team>(num_threads_);
    team_->each(static_cast<uint32_t>(parts), f);
  }

  void wake(int helpers) override {
    if (num_threads_ == 1 || helpers < 1) return;
    if (!team_) team_ = std::make_unique<Team>(num_threads_);
    team_->call_helpers(helpers);
  }

 private:
  // The threads and what they share with the caller.
  struct Team {
    explicit Team(int num_threads) {
      try {
        for (int i = 1; i < num_threads; ++i) threads.emplace_back([this, i] { loop(i); });
      } catch (const std::system_error& error) {
        stop_all();
        throw std::runtime_error("the system gave " + std::to_string(threads.size() + 1) + " of " +
                                 std::to_string(num_threads) + " threads (" + error.what() +
                                 "); use fewer (num_threads)");
      } catch (...) {
        stop_all();
        throw;
      }
    }

    ~Team() { stop_all(); }

    void each(uint32_t parts, const Function& f) {
      round.open(parts, f);
      call_helpers(static_cast<int>(parts) - 1);
      round.work(0);
      round.wait();
    }

    // Makes this many threads look for work, or all if there are fewer; wakes no more than that takes.
    void call_helpers(int wanted) {
      const int awake = static_cast<int>(threads.size()) - news.sleepers();
      news.ring(wanted - awake);
    }

    void loop(int worker) {
      const WithSubnormals subnormals;
      for (;;) {
        const uint32_t known = news.count();
        if (stop.load(std::memory_order_acquire)) return;
        round.work(worker);
        news.wait([&] { return news.count() != known; });
      }
    }

    void stop_all() {
      stop.store(true, std::memory_order_release);
      news.ring(kMaxThreads);
      for (std::thread& thread : threads) thread.join();
      threads.clear();
    }

    Round round;
    alignas(64) Doorbell news;  // rings for a new round, and to stop
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
  };

  const int num_threads_;
  std::unique_ptr<Team> team_;
  // The parent's threads are no threads of the child: it forgets them, without a join.
  ForkHook hook_{{{}, {}, [this] { static_cast<void>(team_.release()); }}};
};

}  // namespace loader
