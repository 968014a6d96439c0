// Host memory that is used again: a gather's output is as large as the mini-batch's features, and faulting
// fresh pages in costs several times what the copy into them costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "fork.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace loader {

// A block of memory on huge pages where the system has them.
struct Buffer {
  uint8_t* data = nullptr;
  int64_t capacity = 0;
};

// Hands out buffers and takes them back; at most `keep` idle ones are held. Safe to call from any thread.
class BufferPool {
 public:
  explicit BufferPool(int keep) : keep_(keep) {}

  ~BufferPool() { clear(); }

  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // A buffer of at least `nbytes` bytes, contents undefined: the smallest idle one that is not wastefully
  // large, else a new one with some room to grow, since mini-batches differ in size by a few percent.
  Buffer take(int64_t nbytes) {
    {
      std::lock_guard<BriefMutex> lock(mutex_);
      auto best = idle_.end();
      for (auto it = idle_.begin(); it != idle_.end(); ++it)
        if (it->capacity >= nbytes && it->capacity / 4 <= nbytes &&
            (best == idle_.end() || it->capacity <= best->capacity))
          best = it;
      if (best != idle_.end()) {
        const Buffer buffer = *best;
        idle_.erase(best);
        return buffer;
      }
    }
    return allocate(nbytes > kMostBytes ? nbytes : nbytes + nbytes / 8);
  }

  // Takes `buffer` back. Beyond `keep`, the smallest idle one is freed: it serves the fewest requests.
  void give_back(Buffer buffer) {
    Buffer surplus = buffer;
    {
      std::lock_guard<BriefMutex> lock(mutex_);
      if (!closed_) {
        idle_.push_back(buffer);
        surplus = {};
        if (idle_.size() > static_cast<size_t>(keep_)) {
          auto smallest = std::min_element(idle_.begin(), idle_.end(), [](const Buffer& a, const Buffer& b) {
            return a.capacity < b.capacity;
          });
          surplus = *smallest;
          idle_.erase(smallest);
        }
      }
    }
    std::free(surplus.data);
  }

  // Frees the idle buffers; those in use are freed when they come back.
  void clear() {
    std::lock_guard<BriefMutex> lock(mutex_);
    closed_ = true;
    for (const Buffer& buffer : idle_) std::free(buffer.data);
    idle_.clear();
  }

  int64_t idle_bytes() const {
    std::lock_guard<BriefMutex> lock(mutex_);
    int64_t sum = 0;
    for (const Buffer& buffer : idle_) sum += buffer.capacity;
    return sum;
  }

 private:
  static constexpr int64_t kMostBytes = int64_t{1} << 60;  // more is nowhere, and sums of it do not fit

  static Buffer allocate(int64_t nbytes) {
    if (nbytes < 0 || nbytes > kMostBytes) throw std::bad_alloc();
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
  mutable BriefMutex mutex_;
  std::vector<Buffer> idle_;
  bool closed_ = false;
};

}  // namespace loader
