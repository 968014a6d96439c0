// loader._core.Gatherer: threads that copy rows of host tensors by id.
#pragma once

#include <pybind11/pybind11.h>

#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "bindings/unlocked.h"
#include "bindings/views.h"
#include "disk/faults.h"
#include "features/gather.h"

namespace loader {

// f(view) of `size` ids, or of any number if that is -1, of the type that they have.
template <typename F>
auto with_ids(py::handle ids, int64_t size, const F& f) {
  if (has_dtype<int32_t>(ids)) return f(view<const int32_t>(ids, "ids", size));
  return f(view<const int64_t>(ids, "ids", size));
}

// Rows of codes in a table: "int8" or "float8_e4m3fn", whose scales are [1, columns] or [num_rows, 1].
inline CodedRows coded_rows(const std::string& code, int64_t columns, const RowsView& table,
                            py::handle scales, const char* device) {
  if (code != "int8" && code != "float8_e4m3fn")
    throw py::type_error("code is '" + code + "'; it must be int8 or float8_e4m3fn");
  if (columns > table.row_bytes)
    throw py::value_error("rows have " + std::to_string(columns) + " columns, and the table " +
                          std::to_string(table.row_bytes) + " bytes for each; it needs a byte for a column");
  const auto shape = scales.attr("shape").cast<std::pair<int64_t, int64_t>>();
  const bool by_column = shape.first == 1 && shape.second == columns;
  if (!by_column && !(shape.first == table.num_rows && shape.second == 1))
    throw py::value_error("scales has shape [" + std::to_string(shape.first) + ", " +
                          std::to_string(shape.second) + "]; it must be [1, " + std::to_string(columns) +
                          "] or [" + std::to_string(table.num_rows) + ", 1]");
  const float* const of = view<const float>(scales, "scales", -1, device).data;
  return {code == "int8" ? Code::kInt8 : Code::kFloat8, columns, {of, !by_column}};
}

inline Element float_type(py::handle tensor, const char* name) {
  const std::string dtype = dtype_of(tensor);
  if (dtype == "torch.float32") return Element::kFloat32;
  if (dtype == "torch.float16") return Element::kFloat16;
  if (dtype == "torch.bfloat16") return Element::kBfloat16;
  throw py::type_error(std::string(name) + " has dtype " + dtype +
                       "; it must be float32, float16 or bfloat16");
}

class Gatherer {
 public:
  Gatherer(int num_threads, bool in_file) : pool_(num_threads), in_file_(in_file) {}

  int num_threads() const { return pool_.size(); }

  // f(pool, in_file), without the GIL and while nobody else uses the pool. The GIL goes first: whoever waits
  // for the pool must not stop the thread that works in it.
  template <typename F>
  auto with_pool(const F& f) {
    const Unlocked unlocked;
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
        if (in_file) require_whole(from.data, from.num_rows * from.row_bytes);
      });
    });
  }

  void gather_converted(py::handle table, py::handle ids, py::handle out, const std::string& code,
                        py::handle scales) {
    const RowsView from = rows_view(table, "table");  // [num_rows, ...], or of codes [num_rows, bytes]
    const RowsView to = rows_view(out, "out");        // [n, ...]
    Conversion by{Element::kFloat32, float_type(out, "out"), 0, {nullptr, false}};
    by.columns = to.row_bytes / bytes_of(by.to);
    if (code.empty()) {
      by.from = float_type(table, "table");
      if (from.row_bytes != by.columns * bytes_of(by.from))
        throw py::value_error("out has rows of " + std::to_string(by.columns) + " elements, the table of " +
                              std::to_string(from.row_bytes / bytes_of(by.from)));
    } else {
      const CodedRows rows = coded_rows(code, by.columns, from, scales, "cpu");
      by.from = rows.code == Code::kInt8 ? Element::kInt8 : Element::kFloat8;
      by.scales = rows.scales;
    }
    with_ids(ids, to.num_rows, [&](const auto& wanted) {  // [n]
      with_pool([&](ThreadPool& pool, bool in_file) {
        loader::gather_converted(pool, {from.data, from.num_rows, from.row_bytes, in_file}, by, wanted.data,
                                 wanted.size, to.data);
        if (in_file) require_whole(from.data, from.num_rows * from.row_bytes);
      });
    });
  }

 private:
  LongMutex mutex_;  // the pool runs one gather at a time
  ThreadPool pool_;
  const bool in_file_;
};

}  // namespace loader
