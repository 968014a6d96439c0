// loader._core.Gatherer: checked tensors in, rows out. loader._core.BufferPool: memory for the rows.
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/gatherer.h"
#include "features/buffer_pool.h"

namespace loader {
namespace {

// `nbytes` of a pool's buffer as a Python object with the buffer protocol; the memory goes back to the pool
// with the last reference, so a tensor made by torch.frombuffer holds it exactly as long as it lives.
class PooledBuffer {
 public:
  PooledBuffer(std::shared_ptr<BufferPool> pool, int64_t nbytes)
      : pool_(std::move(pool)), buffer_(pool_->take(nbytes)), nbytes_(nbytes) {}
  ~PooledBuffer() { pool_->give_back(buffer_); }
  PooledBuffer(const PooledBuffer&) = delete;
  PooledBuffer& operator=(const PooledBuffer&) = delete;

  py::buffer_info info() const {
    return py::buffer_info(buffer_.data, static_cast<py::ssize_t>(nbytes_), /*readonly=*/false);
  }

 private:
  const std::shared_ptr<BufferPool> pool_;
  const Buffer buffer_;
  const int64_t nbytes_;
};

std::shared_ptr<BufferPool> make_pool(int keep) {
  if (keep < 0) throw py::value_error("keep is " + std::to_string(keep) + "; it must be at least 0");
  return std::make_shared<BufferPool>(keep);
}

std::unique_ptr<PooledBuffer> take_buffer(const std::shared_ptr<BufferPool>& pool, int64_t nbytes) {
  if (nbytes < 1) throw py::value_error("nbytes is " + std::to_string(nbytes) + "; it must be at least 1");
  return std::make_unique<PooledBuffer>(pool, nbytes);
}

}  // namespace

void bind_features(py::module_& m) {
  py::class_<Gatherer>(m, "Gatherer", "Copies rows of host tensors by id, on threads of its own.")
      .def(py::init<int, bool>(), py::arg("num_threads"), py::arg("in_file") = false)
      .def_property_readonly("num_threads", &Gatherer::num_threads)
      .def("gather", &Gatherer::gather, py::arg("table"), py::arg("ids"), py::arg("out"),
           "out[i] = table[ids[i]]; ids int32 or int64, table and out contiguous, of one dtype, on the "
           "CPU.")
      .def("gather_converted", &Gatherer::gather_converted, py::arg("table"), py::arg("ids"), py::arg("out"),
           py::arg("code") = "", py::arg("scales") = py::none(),
           "The same in the type of out: float32, float16 or bfloat16, of these types or of codes.");
  py::class_<PooledBuffer>(m, "PooledBuffer", py::buffer_protocol(),
                           "Writable bytes that return to their BufferPool with the last reference.")
      .def_buffer([](const PooledBuffer& buffer) { return buffer.info(); });
  py::class_<BufferPool, std::shared_ptr<BufferPool>>(m, "BufferPool", "Host memory that is used again.")
      .def(py::init(&make_pool), py::arg("keep"))
      .def("take", &take_buffer, py::arg("nbytes"), "A PooledBuffer of `nbytes` bytes, contents undefined.")
      .def("clear", &BufferPool::clear, "Frees the idle buffers now and all others when they come back.")
      .def_property_readonly("idle_bytes", &BufferPool::idle_bytes);
}

}  // namespace loader
