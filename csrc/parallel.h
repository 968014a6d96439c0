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

#include "doorbell.h"
#include "fork.h"

namespace loader {

constexpr int kMaxThreads = 1024;

// Throws unless a pool can have `num_threads` threads.
inline void check_num_threads(int64_t num_threads) {
  const std::string is = "num_threads is " + std::to_string(num_threads) + "; it must be ";
  if (num_threads < 1) throw std::invalid_argument(is + "at least 1");
  if (num_threads > kMaxThreads) throw std::invalid_argument(is + "at most " + std::to_string(kMaxThreads));
}

// The thread that calls takes parts of the work at once; the pool's own threads help as soon as they are
// awake. Nobody waits for a thread that has not come yet: when all parts are done, the call returns. So
// little work costs little, and a thread that others keep from its processor does not hold up the rest.
//
// One call at a time. Threads start with the first call; after a fork, the child starts its own.
class ThreadPool {
 public:
  using Function = std::function<void(int part, int worker)>;

  explicit ThreadPool(int num_threads) : num_threads_(num_threads) { check_num_threads(num_threads); }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return num_threads_; }

  // f(part, worker) for each part in [0, parts), parts in any order; `worker` < size() names the thread, 0 is
  // the caller's. Rethrows the first exception, after all parts were called.
  void each(int64_t parts, const Function& f) {
    if (parts > kMaxParts) throw std::invalid_argument("work in " + std::to_string(parts) + " parts");
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

  // Wakes up to `helpers` threads for calls that follow within microseconds.
  void wake(int helpers) {
    if (num_threads_ == 1 || helpers < 1) return;
    if (!team_) team_ = std::make_unique<Team>(num_threads_);
    team_->call_helpers(helpers);
  }

  // f(begin, end) over [0, n), a contiguous share per thread.
  void split(int64_t n, const std::function<void(int64_t, int64_t)>& f) {
    if (num_threads_ == 1 || n < 2) return f(0, n);
    each(num_threads_, [&](int share, int) {
      const int64_t begin = n * share / num_threads_, end = n * (share + 1) / num_threads_;
      if (begin < end) f(begin, end);
    });
  }

  // f(begin, end) over [0, n) in parts of at least `part`.
  void share(int64_t n, int64_t part, const std::function<void(int64_t, int64_t)>& f) {
    if (num_threads_ == 1 || n <= part) return f(0, n);
    part = std::max(part, n / kMaxParts + 1);
    each((n + part - 1) / part, [&](int index, int) { f(part * index, std::min(part * (index + 1), n)); });
  }

 private:
  static constexpr int64_t kMaxParts = 0xffff;

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
      job = &f;
      error = nullptr;
      left.store(static_cast<int>(parts), std::memory_order_relaxed);
      ticket.store(uint64_t{++round} << 32 | parts << 16, std::memory_order_release);
      call_helpers(static_cast<int>(parts) - 1);
      work(0);
      done.wait([this] { return left.load(std::memory_order_acquire) == 0; });
      if (error) std::rethrow_exception(error);
    }

    // Makes this many threads look for work, or all if there are fewer; wakes no more than that takes.
    void call_helpers(int wanted) {
      const int awake = static_cast<int>(threads.size()) - news.sleepers();
      news.ring(wanted - awake);
    }

    // Takes parts until there is none left. A part that was taken keeps the round from ending, so `job` is
    // the round's own.
    void work(int worker) {
      int finished = 0;
      uint64_t now = ticket.load(std::memory_order_acquire);
      for (;;) {
        const auto next = static_cast<uint32_t>(now & 0xffff),
                   parts = static_cast<uint32_t>(now >> 16 & 0xffff);
        if (next >= parts) break;
        if (!ticket.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_acquire))
          continue;
        try {
          (*job)(static_cast<int>(next), worker);
        } catch (...) {
          std::lock_guard<std::mutex> lock(error_mutex);
          if (!error) error = std::current_exception();
        }
        ++finished;
        now = ticket.load(std::memory_order_acquire);
      }
      if (finished && left.fetch_sub(finished, std::memory_order_acq_rel) == finished) done.ring(1);
    }

    void loop(int worker) {
      for (;;) {
        const uint32_t known = news.count();
        if (stop.load(std::memory_order_acquire)) return;
        work(worker);
        news.wait([&] { return news.count() != known; });
      }
    }

    void stop_all() {
      stop.store(true, std::memory_order_release);
      news.ring(kMaxThreads);
      for (std::thread& thread : threads) thread.join();
      threads.clear();
    }

    alignas(64) std::atomic<uint64_t> ticket{0};  // round << 32 | parts << 16 | parts taken
    alignas(64) std::atomic<int> left{0};         // parts that are not done
    alignas(64) Doorbell news;                    // rings for a new round, and to stop
    alignas(64) Doorbell done;
    const Function* job = nullptr;
    uint32_t round = 0;
    std::atomic<bool> stop{false};
    std::mutex error_mutex;
    std::exception_ptr error;
    std::vector<std::thread> threads;
  };

  const int num_threads_;
  std::unique_ptr<Team> team_;
  // The parent's threads are no threads of the child: it forgets them, without a join.
  ForkHook hook_{{{}, {}, [this] { static_cast<void>(team_.release()); }}};
};

}  // namespace loader
