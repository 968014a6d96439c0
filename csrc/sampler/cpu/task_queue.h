// The shared queue of the fused sampler, and the proof that it ends.
//
// A task is a vertex and a range of hops. Tasks travel in chunks. A worker that runs dry waits; it counts as
// idle only while it holds no task, and only tasks make tasks. So when all workers are idle and the queue is
// empty, no task exists and none can appear: that state, seen under the one mutex, is completion.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "parallel.h"

namespace loader {

// Sample vertex `v` at the hops first..last.
template <typename N>
struct Task {
  N v;
  uint8_t first, last;
};

template <typename N>
class TaskQueue {
 public:
  using Chunk = std::vector<Task<N>>;

  // Forgets everything; `workers` will call `pop` until it returns false.
  void reset(int workers) {
    chunks_.clear();
    workers_ = workers;
    idle_ = 0;
    aborted_ = false;
  }

  // Takes the tasks out of `chunk`, which comes back empty.
  void push(Chunk& chunk) {
    if (chunk.empty()) return;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      chunks_.push_back(std::move(chunk));
      chunk = Chunk();
      if (!spare_.empty()) {  // memory that was used before
        chunk = std::move(spare_.back());
        spare_.pop_back();
      }
      news_.fetch_add(1, std::memory_order_release);
      if (sleeping_ == 0) return;
    }
    ready_.notify_one();
  }

  // Fills `chunk` with tasks, waiting for some if need be; false once all work is done or was aborted.
  bool pop(Chunk& chunk) {
    std::unique_lock<std::mutex> lock(mutex_);
    chunk.clear();
    spare_.push_back(std::move(chunk));
    ++idle_;
    for (;;) {
      if (aborted_) return false;
      if (!chunks_.empty()) {
        --idle_;
        chunk = std::move(chunks_.back());
        chunks_.pop_back();
        return true;
      }
      if (idle_ == workers_) {
        news_.fetch_add(1, std::memory_order_release);
        ready_.notify_all();
        return false;
      }
      const uint64_t known = news_.load(std::memory_order_relaxed);
      lock.unlock();
      const bool news = spin_until([&] { return news_.load(std::memory_order_acquire) != known; });
      lock.lock();
      if (news || news_.load(std::memory_order_relaxed) != known) continue;
      ++sleeping_;
      ready_.wait(lock);
      --sleeping_;
    }
  }

  // Ends all workers after an exception in one of them.
  void abort() {
    std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    news_.fetch_add(1, std::memory_order_release);
    ready_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<Chunk> chunks_, spare_;
  std::atomic<uint64_t> news_{0};  // counts what a waiting worker should look at; changes under the mutex
  int workers_ = 0, idle_ = 0, sleeping_ = 0;
  bool aborted_ = false;
};

}  // namespace loader
