// Exports the neighborhood aggregation; checks what Python hands over and releases the GIL.
#include <pybind11/pybind11.h>

#include <memory>
#include <mutex>
#include <string>

#include "aggregate/mean.h"
#include "bindings/unlocked.h"
#include "bindings/views.h"

namespace loader {

namespace {

// The threads of all aggregations of the process, kept between calls and remade when the count changes. One
// aggregation at a time: two would only share the same cores.
class MeanWorkers {
 public:
  template <typename F>
  void with(int num_threads, const F& f) {
    std::lock_guard<LongMutex> lock(mutex_);
    if (!pool_ || pool_->size() != num_threads) {
      pool_.reset();
      pool_ = std::make_unique<ThreadPool>(num_threads);
    }
    f(*pool_);
  }

 private:
  LongMutex mutex_;
  std::unique_ptr<ThreadPool> pool_;
};

MeanWorkers& workers() {
  static MeanWorkers instance;
  return instance;
}

struct Shape {  // of a matrix
  int64_t rows, cols;
};

Shape shape_of(py::handle tensor, const char* name) {
  const auto dims = tensor.attr("dim")().cast<int64_t>();
  if (dims != 2)
    throw py::value_error(std::string(name) + " has " + std::to_string(dims) + " dimensions; it must have 2");
  return {tensor.attr("size")(0).cast<int64_t>(), tensor.attr("size")(1).cast<int64_t>()};
}

template <typename P, typename I>
void throw_if_bad(BlockError error, const BlockView<P, I>& block, int64_t where) {
  const auto text = [](auto number) { return std::to_string(number); };
  switch (error) {
    case BlockError::ok:
      return;
    case BlockError::bad_start:
      throw py::value_error("indptr of the block starts at " + text(block.indptr[0]) +
                            "; it must start at 0");
    case BlockError::bad_end:
      throw py::value_error("indptr of the block ends at " + text(block.indptr[block.num_dst]) +
                            "; it must end at the number of edges, " + text(block.num_edges));
    case BlockError::not_monotone:
      throw py::value_error("indptr of the block is not monotone: indptr[" + text(where) +
                            "] = " + text(block.indptr[where]) + " > " + text(block.indptr[where + 1]));
    case BlockError::bad_index:
      throw py::value_error("indices of the block holds source " + text(block.indices[where]) + " at edge " +
                            text(where) + "; valid local ids are 0 to " + text(block.num_src - 1));
  }
}

// Both directions: `in` is x or grad_out, `out` the mean or grad_x.
template <typename P, typename I, typename T>
void run_mean(py::handle indptr, py::handle indices, py::handle in, py::handle out, int num_threads,
              bool backward) {
  // Forward x [num_src, F] and out [num_dst, F], backward grad_out [num_dst, F] and grad_x [num_src, F].
  const Shape in_shape = shape_of(in, backward ? "grad_out" : "x");
  const Shape out_shape = shape_of(out, backward ? "grad_x" : "out");
  if (in_shape.cols != out_shape.cols)
    throw py::value_error("input has " + std::to_string(in_shape.cols) + " columns, output " +
                          std::to_string(out_shape.cols) + "; they must be equal");
  const int64_t dim = in_shape.cols;
  BlockView<P, I> block;
  block.num_dst = backward ? in_shape.rows : out_shape.rows;
  block.num_src = backward ? out_shape.rows : in_shape.rows;
  block.indptr = view<const P>(indptr, "indptr", block.num_dst + 1).data;  // [num_dst + 1]
  const auto edges = view<const I>(indices, "indices");                    // [num_edges]
  block.indices = edges.data;
  block.num_edges = edges.size;
  const T* source = view<const T>(in, backward ? "grad_out" : "x").data;
  T* target = view<T>(out, backward ? "grad_x" : "out").data;

  BlockError error = BlockError::ok;
  int64_t where = 0;
  {
    const Unlocked unlocked;
    workers().with(num_threads, [&](ThreadPool& pool) {
      error = check_block(block, pool, &where);
      if (error != BlockError::ok) return;
      if (backward) {
        mean_backward(block, source, dim, target, pool);
      } else {
        mean_forward(block, source, dim, target, pool);
      }
    });
  }
  throw_if_bad(error, block, where);
}

template <typename T>
void dispatch_index(py::handle indptr, py::handle indices, py::handle in, py::handle out, int threads,
                    bool back) {
  const bool wide_edges = dtype_of(indptr) == dtype_name<int64_t>();
  const bool wide_nodes = dtype_of(indices) == dtype_name<int64_t>();
  if (!wide_edges && wide_nodes)
    throw py::type_error(
        "indices is torch.int64 beside a torch.int32 indptr; indices must not be the wider one");
  if (wide_nodes) return run_mean<int64_t, int64_t, T>(indptr, indices, in, out, threads, back);
  if (wide_edges) return run_mean<int64_t, int32_t, T>(indptr, indices, in, out, threads, back);
  return run_mean<int32_t, int32_t, T>(indptr, indices, in, out, threads, back);
}

void dispatch(py::handle indptr, py::handle indices, py::handle in, py::handle out, int64_t num_threads,
              bool back) {
  check_num_threads(num_threads);
  if (dtype_of(in) == dtype_name<double>())
    return dispatch_index<double>(indptr, indices, in, out, num_threads, back);
  return dispatch_index<float>(indptr, indices, in, out, num_threads, back);
}

}  // namespace

void bind_aggregate(py::module_& m) {
  m.def(
      "mean_forward",
      [](py::handle indptr, py::handle indices, py::handle x, py::handle out, int num_threads) {
        dispatch(indptr, indices, x, out, num_threads, false);
      },
      py::arg("indptr"), py::arg("indices"), py::arg("x"), py::arg("out"), py::arg("num_threads"),
      "Writes the mean over each row's sources of x [num_src, F] to out [num_dst, F].");
  m.def(
      "mean_backward",
      [](py::handle indptr, py::handle indices, py::handle grad_out, py::handle grad_x, int num_threads) {
        dispatch(indptr, indices, grad_out, grad_x, num_threads, true);
      },
      py::arg("indptr"), py::arg("indices"), py::arg("grad_out"), py::arg("grad_x"), py::arg("num_threads"),
      "Writes the gradient of mean_forward with respect to x to grad_x [num_src, F].");
}

}  // namespace loader
