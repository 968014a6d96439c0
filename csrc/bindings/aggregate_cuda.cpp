// Exports the neighbourhood aggregation on the GPU. Arguments are addresses and sizes: loader/ops/mean.py
// checked the tensors and owns them. Everything is launched on the given stream, without the GIL; nothing
// waits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "aggregate/cuda/mean.h"
#include "bindings/views.h"

namespace loader {
namespace {

// Makes a device the current one of this thread for as long as it lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    error_ = cudaGetDevice(&before_);
    if (error_ == cudaSuccess && device != before_) error_ = cudaSetDevice(device);
  }
  ~DeviceGuard() {
    int now = before_;
    if (cudaGetDevice(&now) == cudaSuccess && now != before_) cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  cudaError_t error_;
};

template <typename T>
struct Type {
  using type = T;
};

// The types of indptr and indices by the bytes of their elements.
template <typename F>
cudaError_t with_index_types(int index_bytes, int id_bytes, const F& f) {
  if (index_bytes == 4 && id_bytes == 4) return f(Type<int32_t>{}, Type<int32_t>{});
  if (index_bytes == 8 && id_bytes == 4) return f(Type<int64_t>{}, Type<int32_t>{});
  if (index_bytes == 8 && id_bytes == 8) return f(Type<int64_t>{}, Type<int64_t>{});
  throw py::type_error("indptr has elements of " + std::to_string(index_bytes) + " bytes, indices of " +
                       std::to_string(id_bytes) + "; they must be 4 and 4, 8 and 4, or 8 and 8");
}

// As `cuda_mean_dtypes` names them.
enum Dtype : int { kFloat32, kFloat64, kFloat16, kBFloat16 };

template <typename F>
cudaError_t with_dtype(int dtype, const F& f) {
  switch (dtype) {
    case kFloat32:
      return f(Type<float>{});
    case kFloat64:
      return f(Type<double>{});
    case kFloat16:
      return f(Type<__half>{});
    case kBFloat16:
      return f(Type<__nv_bfloat16>{});
  }
  throw py::value_error("there is no type number " + std::to_string(dtype));
}

void throw_if_failed(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + " on the GPU failed: " + cudaGetErrorString(error));
}

// The block, or what bounds it where it is `live`.
struct Place {
  uintptr_t indptr, indices;
  int index_bytes, id_bytes;
  int64_t num_dst, num_src, num_edges;
  uintptr_t live;
};

template <typename P, typename I>
DeviceBlock<P, I> block_of(const Place& p) {
  return {reinterpret_cast<const P*>(p.indptr),
          reinterpret_cast<const I*>(p.indices),
          p.num_dst,
          p.num_src,
          p.num_edges,
          reinterpret_cast<const LiveBlock*>(p.live)};
}

Activation activation(bool relu, uint32_t threshold, uint32_t key) {
  if (threshold > 65535)
    throw py::value_error("threshold is " + std::to_string(threshold) + "; it must be at most 65535");
  return {relu, threshold, key, 65536.0 / static_cast<double>(65536 - threshold)};
}

template <typename T>
Rows<T> rows(uintptr_t data, int64_t stride) {
  return {reinterpret_cast<T*>(data), stride};
}

void forward(uintptr_t indptr, uintptr_t indices, int index_bytes, int id_bytes, int64_t num_dst,
             int64_t num_src, int64_t num_edges, int device, uintptr_t stream, int dtype, int out_dtype,
             uintptr_t x, int64_t x_stride, int64_t dim, uintptr_t mean, uintptr_t own, int64_t out_stride,
             int padding, bool relu, uint32_t threshold, uint32_t key, uintptr_t workspace, uintptr_t live,
             uintptr_t nodes) {
  const Activation f = activation(relu, threshold, key);
  const Place place{indptr, indices, index_bytes, id_bytes, num_dst, num_src, num_edges, live};
  py::gil_scoped_release nogil;
  const DeviceGuard guard(device);
  throw_if_failed(guard.error(), "choosing the device of the aggregation");
  const auto launch = [&](auto input, auto output) {
    using T = typename decltype(input)::type;
    using O = typename decltype(output)::type;
    return with_index_types(index_bytes, id_bytes, [&](auto p, auto i) {
      using P = typename decltype(p)::type;
      using I = typename decltype(i)::type;
      return launch_mean_forward(block_of<P, I>(place), rows<const T>(x, x_stride),
                                 reinterpret_cast<const I*>(nodes), dim, rows<O>(mean, out_stride),
                                 rows<O>(own, out_stride), padding, f, reinterpret_cast<void*>(workspace),
                                 reinterpret_cast<cudaStream_t>(stream));
    });
  };
  cudaError_t error;
  if (dtype == out_dtype) {
    error = with_dtype(dtype, [&](auto type) { return launch(type, type); });
  } else if (dtype == kFloat32 && out_dtype == kBFloat16) {
    error = launch(Type<float>{}, Type<__nv_bfloat16>{});
  } else if (dtype == kFloat32 && out_dtype == kFloat16) {
    error = launch(Type<float>{}, Type<__half>{});
  } else {
    throw py::type_error("the mean of a wider type than float32 cannot be written as a narrower one");
  }
  throw_if_failed(error, "the mean over neighbours");
}

void backward(uintptr_t indptr, uintptr_t indices, int index_bytes, int id_bytes, int64_t num_dst,
              int64_t num_src, int64_t num_edges, int device, uintptr_t stream, int dtype,
              uintptr_t sorted_sources, uintptr_t order, uintptr_t grad_mean, int64_t grad_mean_stride,
              uintptr_t grad_own, int64_t grad_own_stride, uintptr_t x, int64_t x_stride, int64_t dim,
              uintptr_t grad_x, bool relu, uint32_t threshold, uint32_t key, uintptr_t workspace,
              uintptr_t live) {
  const Activation f = activation(relu, threshold, key);
  const Place place{indptr, indices, index_bytes, id_bytes, num_dst, num_src, num_edges, live};
  py::gil_scoped_release nogil;
  const DeviceGuard guard(device);
  throw_if_failed(guard.error(), "choosing the device of the aggregation");
  const cudaError_t error = with_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return with_index_types(index_bytes, id_bytes, [&](auto p, auto i) {
      using P = typename decltype(p)::type;
      using I = typename decltype(i)::type;
      return launch_mean_backward(
          block_of<P, I>(place), reinterpret_cast<const I*>(sorted_sources),
          reinterpret_cast<const int64_t*>(order), rows<const T>(grad_mean, grad_mean_stride),
          rows<const T>(grad_own, grad_own_stride), rows<const T>(x, x_stride), dim, rows<T>(grad_x, dim), f,
          reinterpret_cast<void*>(workspace), reinterpret_cast<cudaStream_t>(stream));
    });
  });
  throw_if_failed(error, "the gradient of the mean over neighbours");
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
  const DeviceGuard guard(device);
  throw_if_failed(guard.error(), "choosing the device of the live blocks");
  const LiveCopy copy{reinterpret_cast<const void*>(copy_from), reinterpret_cast<void*>(copy_to), copy_bytes};
  throw_if_failed(write_live_blocks(blocks, static_cast<int>(fields.size()), reinterpret_cast<LiveBlock*>(to),
                                    copy, reinterpret_cast<cudaStream_t>(stream)),
                  "writing the live blocks");
}

}  // namespace

void bind_aggregate_cuda(py::module_& m) {
  m.def("cuda_mean_forward", &forward);
  m.def("cuda_mean_backward", &backward);
  m.def("cuda_mean_forward_workspace", &mean_forward_workspace);
  m.def("cuda_mean_backward_workspace", &mean_backward_workspace);
  m.attr("cuda_mean_dtypes") = py::make_tuple("float32", "float64", "float16", "bfloat16");
  m.attr("cuda_mean_long_row") = kLongRow;
  m.def("cuda_write_live_blocks", &write_live);
  m.attr("cuda_live_block_bytes") = sizeof(LiveBlock);
  m.attr("cuda_max_live_blocks") = kMaxLiveBlocks;
}

}  // namespace loader
