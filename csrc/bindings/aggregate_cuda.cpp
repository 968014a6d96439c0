// Exports the neighborhood aggregation on the GPU: checks the tensors that loader/ops/gpu.py owns. Values of
// index arrays are trusted. Everything is launched on the given stream, without the GIL; nothing waits.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "aggregate/cuda/mean.h"
#include "bindings/gpu.h"
#include "bindings/views.h"
#include "gpu/narrow_floats.h"

namespace loader {
namespace {

template <typename T>
struct Type {
  using type = T;
};

// The types of rows. `cuda_mean_dtypes` and `cuda_mean_codes` name them, in this order.
enum Dtype : int { kFloat32, kFloat64, kFloat16, kBFloat16, kInt8, kFloat8, kDtypes };
constexpr int kDtypeBytes[kDtypes] = {4, 8, 2, 2, 1, 1};

Dtype dtype_of_rows(py::handle tensor, const char* name) {
  static const KnownDtype known[kDtypes]{KnownDtype("torch.float32"), KnownDtype("torch.float64"),
                                         KnownDtype("torch.float16"), KnownDtype("torch.bfloat16"),
                                         KnownDtype("torch.int8"),    KnownDtype("torch.float8_e4m3fn")};
  const py::object dtype = get_attribute(tensor, attribute_names().dtype);
  for (int i = 0; i < kDtypes; ++i)
    if (known[i].is(dtype)) return static_cast<Dtype>(i);
  throw py::type_error(
      std::string(name) + " has dtype " + std::string(py::str(dtype)) +
      "; it must be float32, float64, float16 or bfloat16, or for codes int8 or float8_e4m3fn");
}

template <typename F>
void with_dtype(int dtype, const F& f) {
  switch (dtype) {
    case kFloat32:
      return f(Type<float>{});
    case kFloat64:
      return f(Type<double>{});
    case kFloat16:
      return f(Type<half>{});
    case kBFloat16:
      return f(Type<bfloat16>{});
  }
  throw py::value_error("there is no type number " + std::to_string(dtype));
}

// What a launch is told, in groups. Strides are in elements.

// indptr [num_dst + 1] and indices [num_edges]; num_dst; None, or the CapturedBlock's bytes, where the block
// is captured: then the arrays are meta tensors, whose sizes bound those of the block; whether rows are
// summed, not averaged; None, or for each of num_dst rows its list in indptr, which may have others, and the
// element of the output that it begins at.
using BlockArgs = std::tuple<py::object, py::object, int64_t, py::object, bool,
                             std::optional<std::tuple<py::object, py::object>>>;
// ReLU, threshold and key of dropout.
using ActivationArgs = std::tuple<bool, uint32_t, uint32_t>;
// The scales of rows of codes, and whether each row has one; None of other rows.
using ScalesArgs = std::tuple<py::object, bool>;

// A block whose arrays were looked at. They are narrow: loader/ops narrows those of large graphs.
struct NarrowBlock {
  View<const int32_t> indptr, indices;
  int64_t num_dst;
  const CapturedBlock* captured;
  bool sums;
  const int64_t *order, *at;

  DeviceBlock<int32_t, int32_t> of(int64_t num_src) const {
    return {indptr.data, indices.data, num_dst, num_src, indices.size, captured, sums, order, at};
  }
};

NarrowBlock block_of(const BlockArgs& args, const Place& gpu) {
  const auto& [indptr, indices, num_dst, captured, sums, rows] = args;
  const Place place = captured.is_none() ? gpu : Place("meta");
  NarrowBlock block{view<const int32_t>(indptr, "indptr", rows ? -1 : num_dst + 1, place),  // [num_dst + 1]
                    view<const int32_t>(indices, "indices", -1, place),                     // [num_edges]
                    num_dst,
                    reinterpret_cast<const CapturedBlock*>(  // [cuda_captured_block_bytes]
                        optional_view<uint8_t>(captured, "captured", sizeof(CapturedBlock), gpu)),
                    sums,
                    nullptr,
                    nullptr};
  if (rows) {
    const auto& [order, at] = *rows;
    block.order = view<const int64_t>(order, "order", num_dst, gpu).data;
    block.at = view<const int64_t>(at, "at", num_dst, gpu).data;
  }
  return block;
}

// Rows [num_rows, columns] of a type.
StridedView rows_of(py::handle tensor, const char* name, Dtype dtype, int64_t num_rows, int64_t columns,
                    const Place& place) {
  const StridedView rows = strided_view(tensor, name, place);
  if (dtype_of_rows(tensor, name) != dtype)
    throw py::type_error(std::string(name) + " has dtype " + dtype_of(tensor) + "; all rows must have one");
  if (rows.num_rows != num_rows || rows.columns != columns)
    throw py::value_error(std::string(name) + " has shape [" + std::to_string(rows.num_rows) + ", " +
                          std::to_string(rows.columns) + "]; it must be [" + std::to_string(num_rows) + ", " +
                          std::to_string(columns) + "]");
  return rows;
}
// The same, or none.
StridedView optional_rows(py::handle tensor, const char* name, Dtype dtype, int64_t num_rows, int64_t columns,
                          const Place& place) {
  if (tensor.is_none()) return {nullptr, 0, 0, 0};
  return rows_of(tensor, name, dtype, num_rows, columns, place);
}

template <typename T>
StridedRows<T> typed(const StridedView& rows) {
  return {reinterpret_cast<T*>(rows.data), rows.stride};
}

Activation activation(const ActivationArgs& args) {
  const auto [relu, threshold, key] = args;
  if (threshold > 65535)
    throw py::value_error("threshold is " + std::to_string(threshold) + "; it must be at most 65535");
  return {relu, threshold, key, 65536.0 / static_cast<double>(65536 - threshold)};
}

// Scales of rows of codes, [1, dim] or [num_rows, 1] float32.
Scales scales_of(const ScalesArgs& args, int64_t num_rows, int64_t dim, const Place& place) {
  const auto& [of, by_row] = args;
  return {optional_view<const float>(of, "scales", by_row ? num_rows : dim, place), by_row};
}

// Writes to `out` [num_dst, columns]: from column `mean_at` on the means, and from `own_at` on, if that is
// not -1, the own rows; behind the means `padding` columns. x is [num_src, dim] or, with `nodes` [num_src],
// the table whose rows they name; where the block is captured it may be a meta tensor. `workspace`:
// [mean_forward_workspace(num_edges)] bytes, or None if no row can be a long one.
void forward(const LaunchPlace& where, const BlockArgs& block_args, py::handle x, py::handle nodes,
             py::handle out, int64_t mean_at, int64_t own_at, int padding, const ActivationArgs& active,
             py::handle workspace, const ScalesArgs& coding) {
  const Activation f = activation(active);
  const auto [device, stream] = where;
  const Place place{kGpu, device};
  const NarrowBlock block = block_of(block_args, place);
  const bool on_meta = block.captured && get_attribute(x, attribute_names().is_meta).ptr() == Py_True;
  const StridedView from = strided_view(x, "x", on_meta ? Place("meta") : place);
  const int64_t dim = from.columns;
  const Dtype dtype = dtype_of_rows(x, "x");
  View<const int32_t> named{};
  if (!nodes.is_none()) {
    named = view<const int32_t>(nodes, "nodes", -1, place);
    if (named.size < block.num_dst)
      throw py::value_error("nodes has " + std::to_string(named.size) + " elements; the block has " +
                            std::to_string(block.num_dst) + " destinations");
  }
  const StridedView to = strided_view(out, "out", place);
  const Dtype out_dtype = dtype_of_rows(out, "out");
  const int64_t last = std::max(mean_at + dim + padding, own_at < 0 ? 0 : own_at + dim);
  if (block.at) {
    if (mean_at != 0 || own_at >= 0 || padding != 0 || to.stride != to.columns)
      throw py::value_error("rows with places of their own have nothing beside them, in a contiguous output");
  } else if (to.num_rows != block.num_dst || mean_at < 0 || padding < 0 || to.columns < last)
    throw py::value_error("out has shape [" + std::to_string(to.num_rows) + ", " +
                          std::to_string(to.columns) + "]; it must have " + std::to_string(block.num_dst) +
                          " rows and at least " + std::to_string(last) + " columns");
  const auto column = [&](int64_t at) -> StridedView {
    return {at < 0 ? nullptr : to.data + at * kDtypeBytes[out_dtype], to.num_rows, dim, to.stride};
  };
  const StridedView mean = column(mean_at), own = column(own_at);
  const int64_t num_edges = block.indices.size;
  void* const scratch =
      optional_view<uint8_t>(workspace, "workspace", mean_forward_workspace(num_edges), place);
  if (!scratch && num_edges > kLongRowInTurns)
    throw py::value_error("workspace is None; a block of " + std::to_string(num_edges) + " edges needs it");
  // The rows of a captured block are those of a table that is not known yet.
  const Scales scales = scales_of(coding, on_meta ? -1 : from.num_rows, dim, place);
  const auto launch = [&, device = device, stream = stream](auto input, auto output) {
    using T = typename decltype(input)::type;
    using O = typename decltype(output)::type;
    launch_mean_forward(block.of(from.num_rows), typed<const T>(from), named.data, dim, typed<O>(mean),
                        typed<O>(own), padding, f, scratch, device, stream_of(stream), scales);
  };
  const auto launch_coded = [&](auto input) {
    if (out_dtype == kFloat32) return launch(input, Type<float>{});
    if (out_dtype == kFloat16) return launch(input, Type<half>{});
    if (out_dtype == kBFloat16) return launch(input, Type<bfloat16>{});
    throw py::type_error("the mean of decoded rows is written as float32, float16 or bfloat16");
  };
  doing("the mean over neighbors on the GPU", [&, device = device] {
    const py::gil_scoped_release nogil;
    const gpu::OnDevice current(device);
    if ((dtype == kInt8 || dtype == kFloat8) != (scales.of != nullptr)) {
      throw py::type_error("rows of codes have scales, and no other rows do");
    } else if (dtype == kInt8) {
      launch_coded(Type<int8>{});
    } else if (dtype == kFloat8) {
      launch_coded(Type<float8>{});
    } else if (dtype == out_dtype) {
      with_dtype(dtype, [&](auto type) { launch(type, type); });
    } else if (dtype == kFloat32 && out_dtype == kBFloat16) {
      launch(Type<float>{}, Type<bfloat16>{});
    } else if (dtype == kFloat32 && out_dtype == kFloat16) {
      launch(Type<float>{}, Type<half>{});
    } else {
      throw py::type_error("the mean of a wider type than float32 cannot be written as a narrower one");
    }
  });
}

// `grad_x` [num_src, dim], of the type of all rows; grad_mean and grad_own [num_dst, dim], or one of them
// None; x [num_src, dim], as `forward` had it, or None without ReLU; sorted_sources and order [num_edges], or
// None: the edges by source, for a sum in their order; workspace [mean_backward_workspace(...)] bytes.
void backward(const LaunchPlace& where, const BlockArgs& block_args, py::handle sorted_sources,
              py::handle order, py::handle grad_mean, py::handle grad_own, py::handle x, py::handle grad_x,
              const ActivationArgs& active, py::handle workspace) {
  const Activation f = activation(active);
  const auto [device, stream] = where;
  const Place place{kGpu, device};
  const NarrowBlock block = block_of(block_args, place);
  const StridedView to = strided_view(grad_x, "grad_x", place);
  const Dtype dtype = dtype_of_rows(grad_x, "grad_x");
  const int64_t num_src = to.num_rows, dim = to.columns, num_edges = block.indices.size;
  const StridedView of_mean = optional_rows(grad_mean, "grad_mean", dtype, block.num_dst, dim, place);
  const StridedView of_own = optional_rows(grad_own, "grad_own", dtype, block.num_dst, dim, place);
  const StridedView read = optional_rows(x, "x", dtype, num_src, dim, place);
  if (block.at) throw py::value_error("rows with places of their own have no gradient");
  if (grad_mean.is_none() && grad_own.is_none())
    throw py::value_error("grad_mean and grad_own are None; there must be one of them");
  if (f.relu && x.is_none()) throw py::value_error("x is None; the gradient of ReLU needs it");
  if (sorted_sources.is_none() != order.is_none())
    throw py::value_error("sorted_sources and order belong together; give both or none");
  const auto* const sorted = optional_view<const int32_t>(sorted_sources, "sorted_sources", num_edges, place);
  const int64_t* const places = optional_view<const int64_t>(order, "order", num_edges, place);
  const int64_t bytes = mean_backward_workspace(num_src, num_edges);
  void* const scratch = view<uint8_t>(workspace, "workspace", bytes, place).data;
  doing("the gradient of the mean over neighbors on the GPU", [&, device = device, stream = stream] {
    const py::gil_scoped_release nogil;
    const gpu::OnDevice current(device);
    with_dtype(dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      launch_mean_backward(block.of(num_src), sorted, places, typed<const T>(of_mean), typed<const T>(of_own),
                           typed<const T>(read), dim, typed<T>(to), f, scratch, device, stream_of(stream));
    });
  });
}

// As CapturedBlock has them: indptr and indices, num_dst, rows x and nodes, or None, and key.
using CapturedFields = std::tuple<py::object, py::object, int64_t, py::object, py::object, uint32_t>;

// Also copies `labels` to the beginning of `labels_to`, of one type.
void write_captured(const std::vector<CapturedFields>& fields, py::handle to, py::handle labels,
                    py::handle labels_to, int device, StreamHandle stream) {
  if (fields.size() > kMaxCapturedBlocks)
    throw py::value_error("there are " + std::to_string(fields.size()) + " blocks; at most " +
                          std::to_string(kMaxCapturedBlocks) + " can be captured");
  const Place place{kGpu, device};
  CapturedBlock blocks[kMaxCapturedBlocks] = {};
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto& [indptr, indices, num_dst, x, nodes, key] = fields[i];
    const auto lists = view<const int32_t>(indptr, "indptr", num_dst + 1, place);  // [num_dst + 1]
    const auto sources = view<const int32_t>(indices, "indices", -1, place);       // [num_edges]
    StridedView rows{};
    if (!x.is_none()) {
      rows = strided_view(x, "x", place);  // [num_src, dim], or the table that nodes name rows of
      dtype_of_rows(x, "x");
    }
    const auto* const named = optional_view<const int32_t>(nodes, "nodes", -1, place);  // [num_src]
    blocks[i] = {lists.data, sources.data, num_dst, sources.size, rows.data, rows.stride, named, key};
  }
  const auto count = static_cast<int64_t>(fields.size());
  auto* const captured = reinterpret_cast<CapturedBlock*>(
      view<uint8_t>(to, "captured", count * static_cast<int64_t>(sizeof(CapturedBlock)), place).data);
  const auto from = bytes_view(labels, "labels", place), room = bytes_view(labels_to, "labels_to", place);
  if (!get_attribute(labels, attribute_names().dtype).is(get_attribute(labels_to, attribute_names().dtype)))
    throw py::type_error("labels has dtype " + dtype_of(labels) + "; it must be that of labels_to, " +
                         dtype_of(labels_to));
  if (from.size > room.size)
    throw py::value_error("labels has " + std::to_string(from.size) + " bytes; there is room for " +
                          std::to_string(room.size));
  const CapturedCopy copy{from.data, room.data, from.size};
  launching("writing the captured blocks", {device, stream}, [&](int on, gpu::Stream of) {
    write_captured_blocks(blocks, static_cast<int>(count), captured, copy, on, of);
  });
}

}  // namespace

void bind_aggregate_cuda(py::module_& m) {
  m.def("cuda_mean_forward", &forward);
  m.def("cuda_mean_backward", &backward);
  m.def("cuda_mean_forward_workspace", &mean_forward_workspace);
  m.def("cuda_mean_backward_workspace", &mean_backward_workspace);
  m.attr("cuda_mean_dtypes") = py::make_tuple("float32", "float64", "float16", "bfloat16");
  m.attr("cuda_mean_codes") = py::make_tuple("int8", "float8_e4m3fn");  // their numbers follow
  m.attr("cuda_mean_long_row") = kLongRowInTurns;
  m.def("cuda_write_captured_blocks", &write_captured);
  m.attr("cuda_captured_block_bytes") = sizeof(CapturedBlock);
  m.attr("cuda_max_captured_blocks") = kMaxCapturedBlocks;
}

}  // namespace loader
