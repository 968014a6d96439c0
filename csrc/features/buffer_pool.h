// Host memory that is used again: a gather's output is as large as the mini-batch's features, and faulting
// fresh pages in costs several times what the copy into them costs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "per_process.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace loader {

// A block of memory on huge pages where the system has them.
struct Buffer {
  uint8_t* data = nullptr;
  int64_t capacity = 0;
};

// Hands out buffers and takes them back; at most `keep` idle ones are held. Safe to call from any thread. A
// forked child begins without idle ones; it may give back what it inherited.
class BufferPool {
 public:
  explicit BufferPool(int keep) : keep_(keep), idle_([] { return std::make_unique<Idle>(); }) {}

  ~BufferPool() { clear(); }

  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // A buffer of at least `nbytes` bytes, contents undefined: the smallest idle one that is not wastefully
  // large, else a new one with some room to grow, since mini-batches differ in size by a few percent.
  Buffer take(int64_t nbytes) {
    {
      Idle& idle = idle_.get();
      std::lock_guard<std::mutex> lock(idle.mutex);
      auto& buffers = idle.buffers;
      auto best = buffers.end();
      for (auto it = buffers.begin(); it != buffers.end(); ++it)
        if (it->capacity >= nbytes && it->capacity / 4 <= nbytes &&
            (best == buffers.end() || it->capacity <= best->capacity))
          best = it;
      if (best != buffers.end()) {
        const Buffer buffer = *best;
        buffers.erase(best);
        return buffer;
      }
    }
    return allocate(nbytes + nbytes / 8);
  }

  // Takes `buffer` back. Beyond `keep`, the smallest idle one is freed: it serves the fewest requests.
  void give_back(Buffer buffer) {
    Buffer surplus = buffer;
    {
      Idle& idle = idle_.get();
      std::lock_guard<std::mutex> lock(idle.mutex);
      if (!closed_) {
        auto& buffers = idle.buffers;
        buffers.push_back(buffer);
        surplus = {};
        if (buffers.size() > static_cast<size_t>(keep_)) {
          const auto smaller = [](const Buffer& a, const Buffer& b) { return a.capacity < b.capacity; };
          const auto smallest = std::min_element(buffers.begin(), buffers.end(), smaller);
          surplus = *smallest;
          buffers.erase(smallest);
        }
      }
    }
    std::free(surplus.data);
  }

  // Frees the idle buffers; those in use are freed when they come back.
  void clear() {
    Idle& idle = idle_.get();
    std::lock_guard<std::mutex> lock(idle.mutex);
    closed_ = true;
    for (const Buffer& buffer : idle.buffers) std::free(buffer.data);
    idle.buffers.clear();
  }

  int64_t idle_bytes() const {
    Idle& idle = idle_.get();
    std::lock_guard<std::mutex> lock(idle.mutex);
    int64_t sum = 0;
    for (const Buffer& buffer : idle.buffers) sum += buffer.capacity;
    return sum;
  }

 private:
  struct Idle {
    std::mutex mutex;
    std::vector<Buffer> buffers;
  };

  static Buffer allocate(int64_t nbytes) {
    constexpr int64_t kHugePage = int64_t{2} << 20;
    const int64_t capacity = std::max((nbytes + kHugePage - 1) / kHugePage, int64_t{1}) * kHugePage;
    void* const data = std::aligned_alloc(kHugePage, static_cast<size_t>(capacity));
    if (!data) throw std::bad_alloc();
#if defined(__linux__)
    madvise(data, static_cast<size_t>(capacity), MADV_HUGEPAGE);  // advice: without it the pages are small
#endif
    return {static_cast<uint8_t*>(data), capacity};
  }

  const int keep_;
  std::atomic<bool> closed_{false};  // holds in a forked child, too
  const PerProcess<Idle> idle_;
};

}  // namespace loader
