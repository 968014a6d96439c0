// Exports layers over tiles of rows on the GPU: checks the tensors that loader/ops/tiles.py owns. Values of
// index arrays are trusted. Everything is launched on the given stream; nothing waits.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "bindings/gpu.h"
#include "bindings/views.h"
#include "layers/cuda/norm.h"

namespace loader {
namespace {

// float32 rows [num_rows, columns], or any number of rows if that is < 0, in vectors of 16 bytes.
StridedRows<const float> vectors_of(py::handle tensor, const char* name, int64_t num_rows, int64_t columns,
                                    const Place& place) {
  const StridedView rows = strided_view(tensor, name, place);
  if (!has_dtype<float>(tensor))
    throw py::type_error(std::string(name) + " has dtype " + dtype_of(tensor) + "; it must be torch.float32");
  if ((num_rows >= 0 && rows.num_rows != num_rows) || rows.columns != columns)
    throw py::value_error(std::string(name) + " has shape [" + std::to_string(rows.num_rows) + ", " +
                          std::to_string(rows.columns) + "]; it must be [" +
                          (num_rows < 0 ? "types" : std::to_string(num_rows)) + ", " +
                          std::to_string(columns) + "]");
  if (reinterpret_cast<uintptr_t>(rows.data) % 16 || (rows.num_rows > 1 && rows.stride % 4))
    throw py::value_error(std::string(name) + " has rows that do not begin at multiples of 16 bytes");
  return {reinterpret_cast<const float*>(rows.data), rows.stride};
}

StridedRows<const float> optional_vectors(py::handle tensor, const char* name, int64_t num_rows,
                                          int64_t columns, const Place& place) {
  if (tensor.is_none()) return {nullptr, 0};
  return vectors_of(tensor, name, num_rows, columns, place);
}

// types [tiles] and the rows of a tile; weight, shift and bias (or None), [types, dim] each.
using LayerWeights = std::tuple<py::object, int, py::object, py::object, py::object>;
// Epsilon of the norm; ReLU; threshold and key [1] of dropout, None without.
using LayerActivation = std::tuple<float, bool, uint32_t, py::object>;

NormArgs norm_args(py::handle x, const LayerWeights& weights, const LayerActivation& activation,
                   const Place& place) {
  const auto& [types, tile, weight, shift, bias] = weights;
  const auto& [epsilon, relu, threshold, key] = activation;
  const StridedView rows = strided_view(x, "x", place);
  const int64_t dim = rows.columns;
  if (dim % 4 || dim == 0 || dim > kMostNormed)
    throw py::value_error("x has " + std::to_string(dim) + " columns; it must have a multiple of 4 up to " +
                          std::to_string(kMostNormed));
  if (tile < 1 || rows.num_rows % tile || rows.num_rows >= int64_t{1} << 32)
    throw py::value_error("x has " + std::to_string(rows.num_rows) +
                          " rows; it must be a multiple of those of a tile, " + std::to_string(tile));
  if (threshold > 65535 || (threshold != 0) == key.is_none())
    throw py::value_error("threshold is " + std::to_string(threshold) +
                          "; it must be at most 65535, with a key unless it is 0");
  const StridedView of_weight = strided_view(weight, "weight", place);
  NormArgs args{};
  args.tiles = {view<const int64_t>(types, "types", rows.num_rows / tile, place).data, rows.num_rows, tile};
  args.dim = dim;
  args.x = vectors_of(x, "x", -1, dim, place);
  args.weight = vectors_of(weight, "weight", -1, dim, place);
  args.shift = vectors_of(shift, "shift", of_weight.num_rows, dim, place);
  args.bias = optional_vectors(bias, "bias", of_weight.num_rows, dim, place);
  args.epsilon = epsilon;
  args.f = {relu, threshold, 0, 65536.0 / static_cast<double>(65536 - threshold)};
  args.key = optional_view<const int64_t>(key, "key", 1, place);
  return args;
}

// Writes `out` [rows, dim] and, unless it is None, `moments` [rows, 2]; `residual` [rows, dim] may be None.
void run_norm(const LaunchPlace& where, py::handle x, const LayerWeights& weights,
              const LayerActivation& activation, py::handle residual, py::handle out, py::handle moments) {
  const Place place{kGpu, std::get<0>(where)};
  NormForward args{};
  static_cast<NormArgs&>(args) = norm_args(x, weights, activation, place);
  const int64_t rows = args.tiles.rows;
  args.residual = optional_vectors(residual, "residual", rows, args.dim, place);
  args.out = view<float>(out, "out", rows * args.dim, place).data;
  args.moments = optional_view<float>(moments, "moments", rows * 2, place);
  launching("the norm of rows on the GPU", where,
            [&](int device, gpu::Stream stream) { launch_norm(args, device, stream); });
}

// Writes `grad_x` [rows, dim] and `sums` [tiles * parts, 2 or 3, dim]: three if there is a bias.
void run_norm_gradient(const LaunchPlace& where, py::handle x, const LayerWeights& weights,
                       const LayerActivation& activation, py::handle grad, py::handle moments,
                       py::handle grad_x, int parts, py::handle sums) {
  const Place place{kGpu, std::get<0>(where)};
  NormBackward args{};
  static_cast<NormArgs&>(args) = norm_args(x, weights, activation, place);
  const int64_t rows = args.tiles.rows, count = args.bias.data ? 3 : 2;
  args.grad = vectors_of(grad, "grad", rows, args.dim, place);
  args.moments = view<const float>(moments, "moments", rows * 2, place).data;
  args.grad_x = view<float>(grad_x, "grad_x", rows * args.dim, place).data;
  if (parts < 1 || args.tiles.tile % parts)
    throw py::value_error("parts is " + std::to_string(parts) + "; it must divide the rows of a tile, " +
                          std::to_string(args.tiles.tile));
  args.parts = parts;
  args.sums = view<float>(sums, "sums", rows / args.tiles.tile * parts * count * args.dim, place).data;
  launching("the gradient of the norm on the GPU", where,
            [&](int device, gpu::Stream stream) { launch_norm_gradient(args, device, stream); });
}

// out [types, width]: sums of the rows [tiles * parts, width] of tiles that `order` [tiles] lists from
// begins[t] on.
void run_tile_sums(const LaunchPlace& where, py::handle rows, py::handle order, py::handle begins,
                   py::handle out) {
  const Place place{kGpu, std::get<0>(where)};
  const auto of = rows_view(rows, "rows", place);
  const auto of_begins = view<const int64_t>(begins, "begins", -1, place);
  const int64_t width = of.row_bytes / 4, types = of_begins.size - 1;
  if (!has_dtype<float>(rows))
    throw py::type_error("rows has dtype " + dtype_of(rows) + "; it must be torch.float32");
  if (types < 0 || width % 4 || reinterpret_cast<uintptr_t>(of.data) % 16)
    throw py::value_error("rows has " + std::to_string(width) +
                          " columns; it must have a multiple of 4, from a multiple of 16 bytes on");
  const auto of_order = view<const int64_t>(order, "order", -1, place);
  if (of_order.size == 0 ? of.num_rows != 0 : of.num_rows == 0 || of.num_rows % of_order.size)
    throw py::value_error("rows has " + std::to_string(of.num_rows) +
                          " rows; it must have as many for each element of order, " +
                          std::to_string(of_order.size));
  const TileSums args{reinterpret_cast<const float*>(of.data),
                      static_cast<int>(of.num_rows / std::max<int64_t>(of_order.size, 1)),
                      of_order.data,
                      of_begins.data,
                      types,
                      width,
                      view<float>(out, "out", types * width, place).data};
  launching("sums over tiles on the GPU", where,
            [&](int device, gpu::Stream stream) { launch_tile_sums(args, device, stream); });
}

}  // namespace

void bind_layers_cuda(py::module_& m) {
  m.def("cuda_norm", &run_norm);
  m.def("cuda_norm_gradient", &run_norm_gradient);
  m.def("cuda_sum_tiles", &run_tile_sums);
  m.attr("cuda_most_normed") = kMostNormed;
}

}  // namespace loader
