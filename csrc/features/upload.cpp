#include "features/upload.h"

#include <algorithm>

namespace loader {

Uploader::Uploader(uint8_t* ring, int64_t buffer_bytes, int buffers, int device)
    : ring_(ring), buffer_bytes_(buffer_bytes), device_(device) {
  for (int i = 0; i < buffers; ++i) copied_.emplace_back(device_);
}

template <typename Id>
void Uploader::upload(ThreadPool& pool, const RowTable& table, const Id* ids, int64_t n, uintptr_t to,
                      gpu::Stream stream) {
  check_ids(pool, table.num_rows, ids, n);
  if (table.row_bytes == 0) return;
  const gpu::OnDevice current(device_);
  const int64_t rows = buffer_bytes_ / table.row_bytes;
  for (int64_t begin = 0; begin < n; begin += rows) {
    const int64_t count = std::min(rows, n - begin);
    uint8_t* const buffer = ring_ + static_cast<int64_t>(next_) * buffer_bytes_;
    copied_[next_].wait();
    gather_rows(pool, table, ids + begin, count, buffer, Reader::kDevice);
    gpu::check(gpu::driver().cuMemcpyHtoDAsync(to + static_cast<uintptr_t>(begin * table.row_bytes), buffer,
                                               static_cast<size_t>(count * table.row_bytes), stream),
               "copying rows");
    copied_[next_].record(stream);
    next_ = (next_ + 1) % copied_.size();
  }
}

void Uploader::wait() {
  const gpu::OnDevice current(device_);
  for (const gpu::Fence& copied : copied_) copied.wait();
}

template void Uploader::upload<int32_t>(ThreadPool&, const RowTable&, const int32_t*, int64_t, uintptr_t,
                                        gpu::Stream);
template void Uploader::upload<int64_t>(ThreadPool&, const RowTable&, const int64_t*, int64_t, uintptr_t,
                                        gpu::Stream);

}  // namespace loader
