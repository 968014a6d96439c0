// Exports the neighborhood aggregation on the GPU. Arguments are addresses and sizes: loader/ops/mean.py
// checked the tensors and owns them. Everything is launched on the given stream, without the GIL; nothing
// waits.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "aggregate/cuda/mean.h"
#include "bindings/gpu.h"
#include "gpu/narrow.h"

namespace loader {
namespace {

template <typename T>
struct Type {
  using type = T;
};

// The types of indptr and indices by the bytes of their elements.
template <typename F>
void with_index_types(int index_bytes, int id_bytes, const F& f) {
  if (index_bytes == 4 && id_bytes == 4) return f(Type<int32_t>{}, Type<int32_t>{});
  if (index_bytes == 8 && id_bytes == 4) return f(Type<int64_t>{}, Type<int32_t>{});
  if (index_bytes == 8 && id_bytes == 8) return f(Type<int64_t>{}, Type<int64_t>{});
  throw py::type_error("indptr has elements of " + std::to_string(index_bytes) + " bytes, indices of " +
                       std::to_string(id_bytes) + "; they must be 4 and 4, 8 and 4, or 8 and 8");
}

// As `cuda_mean_dtypes` names them.
enum Dtype : int { kFloat32, kFloat64, kFloat16, kBFloat16, kInt8, kFloat8 };

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

// What a launch is told, in groups: it is called twice a layer of each training step, where tensors would
// cost what the launch does. loader/ops/gpu.py makes them, from tensors whose shapes loader/ops/mean.py
// checked. Addresses that are not given are 0. Strides are in elements, types numbers of Dtype.

// The block, or what bounds it where it is live: indptr [num_dst + 1], indices [num_edges], num_src; bytes of
// an element of indptr and of indices; address of the LiveBlock.
using BlockArgs = std::tuple<uintptr_t, uintptr_t, int64_t, int64_t, int64_t, int, int, uintptr_t>;
// Address and stride of rows.
using RowsArgs = std::tuple<uintptr_t, int64_t>;
// ReLU, threshold and key of dropout.
using ActivationArgs = std::tuple<bool, uint32_t, uint32_t>;
// Address of the scales of rows of codes, and whether each row has one; 0 of other rows.
using ScalesArgs = std::tuple<uintptr_t, bool>;
// Device and stream.
using WhereArgs = std::tuple<int, uintptr_t>;

template <typename P, typename I>
DeviceBlock<P, I> block_of(const BlockArgs& args) {
  const auto& [indptr, indices, num_dst, num_src, num_edges, index_bytes, id_bytes, live] = args;
  return {reinterpret_cast<const P*>(indptr),
          reinterpret_cast<const I*>(indices),
          num_dst,
          num_src,
          num_edges,
          reinterpret_cast<const LiveBlock*>(live)};
}

template <typename F>
void with_index_types(const BlockArgs& args, const F& f) {
  return with_index_types(std::get<5>(args), std::get<6>(args), f);
}

Activation activation(const ActivationArgs& args) {
  const auto [relu, threshold, key] = args;
  if (threshold > 65535)
    throw py::value_error("threshold is " + std::to_string(threshold) + "; it must be at most 65535");
  return {relu, threshold, key, 65536.0 / static_cast<double>(65536 - threshold)};
}

template <typename T>
StridedRows<T> rows(const RowsArgs& args) {
  return {reinterpret_cast<T*>(std::get<0>(args)), std::get<1>(args)};
}

// x [num_src, dim] or, with `nodes` [num_src], the table whose rows they name; mean and own [num_dst, dim],
// of one stride; behind the mean `padding` columns; workspace [mean_forward_workspace(num_edges)] bytes.
void forward(const WhereArgs& where, const BlockArgs& block, int dtype, const RowsArgs& x, uintptr_t nodes,
             int64_t dim, int out_dtype, const RowsArgs& mean, const RowsArgs& own, int padding,
             const ActivationArgs& active, uintptr_t workspace, const ScalesArgs& coding) {
  const Activation f = activation(active);
  const auto [device, stream] = where;
  const Scales scales{reinterpret_cast<const float*>(std::get<0>(coding)), std::get<1>(coding)};
  const auto launch = [&, device = device, stream = stream](auto input, auto output) {
    using T = typename decltype(input)::type;
    using O = typename decltype(output)::type;
    with_index_types(block, [&](auto p, auto i) {
      using P = typename decltype(p)::type;
      using I = typename decltype(i)::type;
      launch_mean_forward(block_of<P, I>(block), rows<const T>(x), reinterpret_cast<const I*>(nodes), dim,
                          rows<O>(mean), rows<O>(own), padding, f, reinterpret_cast<void*>(workspace), device,
                          reinterpret_cast<gpu::Stream>(stream), scales);
    });
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

// grad_mean and grad_own [num_dst, dim]; x [num_src, dim], as `forward` had it, or 0 without ReLU; grad_x
// [num_src, dim]; sorted_sources and order [num_edges], or 0: the edges by source, for a sum in their order;
// workspace [mean_backward_workspace(...)] bytes.
void backward(const WhereArgs& where, const BlockArgs& block, int dtype, uintptr_t sorted_sources,
              uintptr_t order, const RowsArgs& grad_mean, const RowsArgs& grad_own, const RowsArgs& x,
              int64_t dim, uintptr_t grad_x, const ActivationArgs& active, uintptr_t workspace) {
  const Activation f = activation(active);
  const auto [device, stream] = where;
  doing("the gradient of the mean over neighbors on the GPU", [&, device = device, stream = stream] {
    const py::gil_scoped_release nogil;
    const gpu::OnDevice current(device);
    with_dtype(dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      with_index_types(block, [&](auto p, auto i) {
        using P = typename decltype(p)::type;
        using I = typename decltype(i)::type;
        launch_mean_backward(block_of<P, I>(block), reinterpret_cast<const I*>(sorted_sources),
                             reinterpret_cast<const int64_t*>(order), rows<const T>(grad_mean),
                             rows<const T>(grad_own), rows<const T>(x), dim, rows<T>({grad_x, dim}), f,
                             reinterpret_cast<void*>(workspace), device,
                             reinterpret_cast<gpu::Stream>(stream));
      });
    });
  });
}

// As LiveBlock has them: addresses of indptr and indices, num_dst, num_edges, address and stride of x,
// address of nodes, key.
using LiveFields =
    std::tuple<uintptr_t, uintptr_t, int64_t, int64_t, uintptr_t, int64_t, uintptr_t, uint32_t>;

void write_live(const std::vector<LiveFields>& fields, uintptr_t to, uintptr_t copy_from, uintptr_t copy_to,
                int64_t copy_bytes, int device, uintptr_t stream) {
  if (fields.size() > kMaxLiveBlocks)
    throw py::value_error("there are " + std::to_string(fields.size()) + " blocks; at most " +
                          std::to_string(kMaxLiveBlocks) + " can be live");
  LiveBlock blocks[kMaxLiveBlocks] = {};
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto& [indptr, indices, num_dst, num_edges, x, x_stride, nodes, key] = fields[i];
    blocks[i] = {reinterpret_cast<const void*>(indptr),
                 reinterpret_cast<const void*>(indices),
                 num_dst,
                 num_edges,
                 reinterpret_cast<const void*>(x),
                 x_stride,
                 reinterpret_cast<const void*>(nodes),
                 key};
  }
  const LiveCopy copy{reinterpret_cast<const void*>(copy_from), reinterpret_cast<void*>(copy_to), copy_bytes};
  doing("writing the live blocks", [&] {
    const gpu::OnDevice current(device);
    write_live_blocks(blocks, static_cast<int>(fields.size()), reinterpret_cast<LiveBlock*>(to), copy, device,
                      reinterpret_cast<gpu::Stream>(stream));
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
  m.attr("cuda_mean_long_row") = kLongRow;
  m.def("cuda_write_live_blocks", &write_live);
  m.attr("cuda_live_block_bytes") = sizeof(LiveBlock);
  m.attr("cuda_max_live_blocks") = kMaxLiveBlocks;
}

}  // namespace loader
