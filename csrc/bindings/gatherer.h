// loader._core.Gatherer: threads that copy rows of host tensors by id.
#pragma once

#include <pybind11/pybind11.h>

#include <mutex>
#include <string>
#include <type_traits>

#include "bindings/views.h"
#include "features/gather.h"

namespace loader {

// f(view) of `size` ids, or of any number if that is -1, of the type that they have.
template <typename F>
auto with_ids(py::handle ids, int64_t size, const F& f) {
  if (dtype_of(ids) == dtype_name<int32_t>()) return f(view<const int32_t>(ids, "ids", size));
  return f(view<const int64_t>(ids, "ids", size));
}

class Gatherer {
 public:
  Gatherer(int num_threads, bool in_file) : pool_(num_threads), in_file_(in_file) {}

  int num_threads() const { return pool_.size(); }

  // f(pool, in_file), without the GIL and while nobody else uses the pool. The GIL goes first: whoever waits
  // for the pool must not stop the thread that works in it.
  template <typename F>
  auto with_pool(const F& f) {
    const py::gil_scoped_release release;
    const std::lock_guard<LongMutex> lock(mutex_);
    return f(pool_, in_file_);
  }

  void gather(py::handle table, py::handle ids, py::handle out) {
    const RowsView from = rows_view(table, "table");  // [num_rows, ...]
    const RowsView to = rows_view(out, "out");        // [n, ...]
    if (dtype_of(table) != dtype_of(out))
      throw py::type_error("out has dtype " + dtype_of(out) + "; it must be the table's, " + dtype_of(table));
    if (from.row_bytes != to.row_bytes)
      throw py::value_error("out has rows of " + std::to_string(to.row_bytes) + " bytes, the table of " +
                            std::to_string(from.row_bytes));
    with_ids(ids, to.num_rows, [&](const auto& wanted) {  // [n]
      with_pool([&](ThreadPool& pool, bool in_file) {
        gather_rows(pool, {from.data, from.num_rows, from.row_bytes, in_file}, wanted.data, wanted.size,
                    to.data);
      });
    });
  }

 private:
  LongMutex mutex_;  // the pool runs one gather at a time
  ThreadPool pool_;
  const bool in_file_;
};

}  // namespace loader
