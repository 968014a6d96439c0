// Exports attention over the entries of rows on the GPU: checks the tensors that loader/ops/attention_gpu.py
// owns. Values of index arrays are trusted. Everything is launched on the given stream; nothing waits.
#include <pybind11/pybind11.h>

#include <string>
#include <tuple>

#include "attention/cuda/attend.h"
#include "bindings/gpu.h"
#include "bindings/views.h"
#include "gpu/narrow_floats.h"

namespace loader {
namespace {

// indptr [all rows + 1] and entries, int32; order and at [count], int64.
using AttentionLists = std::tuple<py::object, py::object, py::object, py::object>;
// Elements from a head to the next; heads; slope of the scores below 0; whether tensor cores may be used.
using AttentionShape = std::tuple<int64_t, int, float, bool>;

// f(T{}) for the type of the elements of `rows`.
template <typename F>
void with_attended(py::handle rows, const char* name, const F& f) {
  static const KnownDtype narrow("torch.bfloat16");
  if (has_dtype<float>(rows)) return f(float{});
  if (narrow.is_of(rows)) return f(bfloat16{});
  throw py::type_error(std::string(name) + " has dtype " + dtype_of(rows) +
                       "; it must be torch.float32 or torch.bfloat16");
}

[[noreturn]] void refuse_number(const char* name, int64_t number, const std::string& must) {
  throw py::value_error(std::string(name) + " is " + std::to_string(number) + "; it must be " + must);
}

// The elements of `tensor`, of the type of `like`, from a multiple of 16 bytes on.
template <typename T>
T* elements_of(py::handle tensor, const char* name, int64_t size, const py::object& like,
               const Place& place) {
  const RowsView rows = rows_view(tensor, name, place);
  if (get_attribute(tensor, attribute_names().dtype).ptr() != like.ptr())
    throw py::type_error(std::string(name) + " has dtype " + dtype_of(tensor) + ", x has " +
                         std::string(py::str(like)) + "; they must be equal");
  check_size(name, rows.num_rows * rows.row_bytes / static_cast<int64_t>(sizeof(T)), size);
  if (reinterpret_cast<uintptr_t>(rows.data) % 16)
    throw py::value_error(std::string(name) + " does not begin at a multiple of 16 bytes");
  return reinterpret_cast<T*>(rows.data);
}

template <typename T>
AttendedRows<T> attended_rows(const AttentionLists& lists, const AttentionShape& shape, py::handle x,
                              const Place& place) {
  const auto& [indptr, entries, order, at] = lists;
  const auto& [apart, heads, slope, tensor_cores] = shape;
  constexpr int64_t kVector = 16 / sizeof(T);
  const StridedView rows = strided_view(x, "x", place);
  const auto of_order = view<const int64_t>(order, "order", -1, place);
  if (heads < 1) refuse_number("heads", heads, "at least 1");
  if (rows.columns == 0 || rows.columns % kVector)
    throw py::value_error("x has " + std::to_string(rows.columns) + " columns; it must have a multiple of " +
                          std::to_string(kVector));
  if (reinterpret_cast<uintptr_t>(rows.data) % 16 || (rows.num_rows > 1 && rows.stride % kVector))
    throw py::value_error("x has rows that do not begin at multiples of 16 bytes");
  if (apart < rows.columns || apart % kVector)
    refuse_number(
        "apart", apart,
        "a multiple of " + std::to_string(kVector) + ", and at least " + std::to_string(rows.columns));
  AttendedRows<T> args{};
  args.indptr = view<const int32_t>(indptr, "indptr", -1, place).data;
  args.entries = view<const int32_t>(entries, "entries", -1, place).data;
  args.order = of_order.data;
  args.at = view<const int64_t>(at, "at", of_order.size, place).data;
  args.count = of_order.size;
  args.apart = apart;
  args.heads = heads;
  args.dim = rows.columns;
  args.slope = slope;
  args.tensor_cores = tensor_cores;
  args.x = {reinterpret_cast<const T*>(rows.data), rows.stride};
  return args;
}

// Numbers of all rows, and of entries.
std::tuple<int64_t, int64_t> sizes_of(const AttentionLists& lists) {
  const AttributeNames& all = attribute_names();
  return {call_for_int(std::get<0>(lists), all.numel) - 1, call_for_int(std::get<1>(lists), all.numel)};
}

// Writes sums to their places in `out`, flat, and `shares` [entries, heads], from `source` [heads, dim] and
// `sink` [all rows, heads].
void run_attend(const LaunchPlace& where, const AttentionLists& lists, const AttentionShape& shape,
                py::handle x, py::handle source, py::handle sink, py::handle shares, py::handle out) {
  const Place place{kGpu, std::get<0>(where)};
  with_attended(x, "x", [&](auto element) {
    using T = decltype(element);
    AttendForward<T> args{};
    static_cast<AttendedRows<T>&>(args) = attended_rows<T>(lists, shape, x, place);
    const auto [rows, entries] = sizes_of(lists);
    args.source = view<const float>(source, "source", args.heads * args.dim, place).data;
    args.sink = view<const float>(sink, "sink", rows * args.heads, place).data;
    args.shares = view<float>(shares, "shares", entries * args.heads, place).data;
    args.out = elements_of<T>(out, "out", -1, get_attribute(x, attribute_names().dtype), place);
    launching("attention on the GPU", where,
              [&](int device, gpu::Stream stream) { launch_attend(args, device, stream); });
  });
}

template <typename T>
int64_t parts_on(int device, const AttendedRows<T>& rows) {
  const gpu::OnDevice current(device);
  return attend_parts(rows, device);
}

// Parts of the gradient of `source`.
int64_t parts_of(const LaunchPlace& where, const AttentionLists& lists, const AttentionShape& shape,
                 py::handle x) {
  const Place place{kGpu, std::get<0>(where)};
  int64_t parts = 0;
  with_attended(x, "x", [&](auto element) {
    using T = decltype(element);
    parts = parts_on(std::get<0>(where), attended_rows<T>(lists, shape, x, place));
  });
  return parts;
}

// Writes `scores` [entries, heads], `sink` [all rows, heads] of these rows, and `source` [parts, heads, dim].
void run_attend_gradient(const LaunchPlace& where, const AttentionLists& lists, const AttentionShape& shape,
                         py::handle x, py::handle shares, py::handle grad, py::handle scores, py::handle sink,
                         py::handle source) {
  const Place place{kGpu, std::get<0>(where)};
  with_attended(x, "x", [&](auto element) {
    using T = decltype(element);
    AttendBackward<T> args{};
    static_cast<AttendedRows<T>&>(args) = attended_rows<T>(lists, shape, x, place);
    const auto [rows, entries] = sizes_of(lists);
    args.parts = parts_on<T>(std::get<0>(where), args);
    args.shares = view<const float>(shares, "shares", entries * args.heads, place).data;
    args.grad = elements_of<T>(grad, "grad", -1, get_attribute(x, attribute_names().dtype), place);
    args.scores = view<float>(scores, "scores", entries * args.heads, place).data;
    args.sink = view<float>(sink, "sink", rows * args.heads, place).data;
    args.source = view<float>(source, "source", args.parts * args.heads * args.dim, place).data;
    launching("the gradient of attention on the GPU", where,
              [&](int device, gpu::Stream stream) { launch_attend_gradient(args, device, stream); });
  });
}

// begins [sources + 1], entries in the order of their sources, one number that bounds those that count, and
// the row of each entry, all int32.
using AttentionBySource = std::tuple<py::object, py::object, py::object, py::object>;
// Of all rows: relation, int32, and where their sums begin, int64; of each relation, how far heads are apart.
using AttentionPlaces = std::tuple<py::object, py::object, py::object>;

// Writes `out` [sources, dim], the gradient of x, from `vectors` [relations, heads, dim].
void run_attend_sources(const LaunchPlace& where, const AttentionBySource& lists,
                        const AttentionPlaces& places, int heads, py::handle vectors, py::handle shares,
                        py::handle scores, py::handle grad, py::handle out) {
  const Place place{kGpu, std::get<0>(where)};
  with_attended(out, "out", [&](auto element) {
    using T = decltype(element);
    const auto& [begins, sorted, limit, row_of] = lists;
    const auto& [relation, at, apart] = places;
    const StridedView rows = strided_view(out, "out", place);
    if (heads < 1) refuse_number("heads", heads, "at least 1");
    if (rows.columns == 0 || rows.columns % (16 / static_cast<int64_t>(sizeof(T))))
      throw py::value_error("out has " + std::to_string(rows.columns) +
                            " columns; it must have whole vectors of 16 bytes");
    const py::object dtype = get_attribute(out, attribute_names().dtype);
    AttendSources<T> args{};
    args.sources = rows.num_rows;
    args.dim = rows.columns;
    args.heads = heads;
    args.begins = view<const int32_t>(begins, "begins", args.sources + 1, place).data;
    const auto of_sorted = view<const int32_t>(sorted, "sorted", -1, place);
    args.sorted = of_sorted.data;
    args.limit = view<const int32_t>(limit, "limit", 1, place).data;
    args.row_of = view<const int32_t>(row_of, "row_of", of_sorted.size, place).data;
    const auto of_relation = view<const int32_t>(relation, "relation", -1, place);
    args.relation = of_relation.data;
    args.at = view<const int64_t>(at, "at", of_relation.size, place).data;
    const auto of_apart = view<const int64_t>(apart, "apart", -1, place);
    args.apart = of_apart.data;
    args.source = view<const float>(vectors, "vectors", of_apart.size * heads * args.dim, place).data;
    args.shares = view<const float>(shares, "shares", of_sorted.size * heads, place).data;
    args.scores = view<const float>(scores, "scores", of_sorted.size * heads, place).data;
    args.grad = elements_of<T>(grad, "grad", -1, dtype, place);
    args.out = elements_of<T>(out, "out", args.sources * args.dim, dtype, place);
    launching("the gradient of attention on the GPU", where,
              [&](int device, gpu::Stream stream) { launch_attend_sources(args, device, stream); });
  });
}

}  // namespace

void bind_attention_cuda(py::module_& m) {
  m.def("cuda_attend", &run_attend);
  m.def("cuda_attend_parts", &parts_of);
  m.def("cuda_attend_gradient", &run_attend_gradient);
  m.def("cuda_attend_sources", &run_attend_sources);
}

}  // namespace loader
