// Rows of a table in host memory, by id, to a GPU: threads gather them into pinned buffers, each of which is
// copied while the next one is filled.
#pragma once

#include <cstdint>
#include <deque>

#include "features/gather.h"
#include "gpu/fence.h"

namespace loader {

class Uploader {
 public:
  // `ring`: pinned memory, `buffers` buffers of `buffer_bytes` bytes each. It has to stay until `wait` has
  // returned. Throws gpu::Error if the driver refuses.
  Uploader(uint8_t* ring, int64_t buffer_bytes, int buffers, int device);

  // to[i] = row ids[i] of the table, for 0 <= i < n, in memory of the device and in the order of the stream.
  // A row fits a buffer. Returns when the last rows are in one. Throws as check_ids, before anything is
  // copied.
  template <typename Id>
  void upload(ThreadPool& pool, const RowTable& table, const Id* ids, int64_t n, uintptr_t to,
              gpu::Stream stream);

  // Waits for the copies.
  void wait();

 private:
  uint8_t* const ring_;
  const int64_t buffer_bytes_;
  const int device_;
  std::deque<gpu::Fence> copied_;  // after the last copy out of each buffer
  size_t next_ = 0;
};

}  // namespace loader
