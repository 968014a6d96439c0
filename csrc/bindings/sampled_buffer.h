// The memory of what was sampled, as Python sees it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "features/buffer_pool.h"

namespace loader {

namespace py = pybind11;

constexpr int64_t kLine = 64;                         // bytes: where arrays begin
constexpr int64_t kPooledBytes = int64_t{512} << 10;  // less is not worth a huge page

// The memory of one mini-batch. Large ones come from a pool and go back to it with the last reference:
// faulting fresh pages in would cost about what the sampling costs, and stop all threads of the process now
// and then.
class SampledBuffer {
 public:
  SampledBuffer(std::shared_ptr<BufferPool> pool, int64_t nbytes)
      : pool_(nbytes < kPooledBytes ? nullptr : std::move(pool)), nbytes_(nbytes) {
    if (pool_)
      buffer_ = pool_->take(nbytes);
    else
      buffer_.data = static_cast<uint8_t*>(std::aligned_alloc(kLine, (nbytes + kLine - 1) / kLine * kLine));
    if (!buffer_.data) throw std::bad_alloc();
  }
  ~SampledBuffer() {
    if (pool_)
      pool_->give_back(buffer_);
    else
      std::free(buffer_.data);
  }
  SampledBuffer(const SampledBuffer&) = delete;
  SampledBuffer& operator=(const SampledBuffer&) = delete;

  uint8_t* data() const { return buffer_.data; }
  py::buffer_info info() const {
    return py::buffer_info(buffer_.data, static_cast<py::ssize_t>(nbytes_), /*readonly=*/false);
  }

 private:
  const std::shared_ptr<BufferPool> pool_;
  Buffer buffer_;
  const int64_t nbytes_;
};

}  // namespace loader
