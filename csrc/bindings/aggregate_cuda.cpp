// Exports the neighbourhood aggregation on the GPU. Arguments are addresses and sizes: loader/ops.py checked
// the tensors and owns them. Everything is launched on the given stream, without the GIL; nothing waits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <pybind11/pybind11.h>

#include <string>
#include <type_traits>

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

template <typename F>
cudaError_t with_dtype(const std::string& dtype, const F& f) {
  if (dtype == "float32") return f(Type<float>{});
  if (dtype == "float64") return f(Type<double>{});
  if (dtype == "float16") return f(Type<__half>{});
  if (dtype == "bfloat16") return f(Type<__nv_bfloat16>{});
  throw py::type_error("x has dtype " + dtype + "; it must be float32, float64, float16 or bfloat16");
}

void throw_if_failed(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + " on the GPU failed: " + cudaGetErrorString(error));
}

// What forward and backward are told of the block, the activation and where to run.
struct Call {
  uintptr_t indptr, indices;
  int index_bytes, id_bytes;
  int64_t num_dst, num_src, num_edges;
  bool relu;
  uint32_t threshold, key;
  int device;
  uintptr_t stream;

  template <typename P, typename I>
  DeviceBlock<P, I> block() const {
    return {reinterpret_cast<const P*>(indptr), reinterpret_cast<const I*>(indices), num_dst, num_src,
            num_edges};
  }
  Activation activation() const {
    return {relu, threshold, key, 65536.0 / static_cast<double>(65536 - threshold)};
  }
};

template <typename T>
Rows<T> rows(uintptr_t data, int64_t stride) {
  return {reinterpret_cast<T*>(data), stride};
}

void forward(const Call& call, const std::string& dtype, const std::string& out_dtype, uintptr_t x,
             int64_t x_stride, int64_t dim, uintptr_t mean, uintptr_t own, int64_t out_stride,
             uintptr_t workspace) {
  py::gil_scoped_release nogil;
  const DeviceGuard guard(call.device);
  throw_if_failed(guard.error(), "choosing the device of the aggregation");
  const auto launch = [&](auto input, auto output) {
    using T = typename decltype(input)::type;
    using O = typename decltype(output)::type;
    return with_index_types(call.index_bytes, call.id_bytes, [&](auto p, auto i) {
      using P = typename decltype(p)::type;
      using I = typename decltype(i)::type;
      return launch_mean_forward(call.block<P, I>(), rows<const T>(x, x_stride), dim,
                                 rows<O>(mean, out_stride), rows<O>(own, out_stride), call.activation(),
                                 reinterpret_cast<void*>(workspace),
                                 reinterpret_cast<cudaStream_t>(call.stream));
    });
  };
  cudaError_t error;
  if (dtype == "float32" && out_dtype == "bfloat16") {
    error = launch(Type<float>{}, Type<__nv_bfloat16>{});
  } else if (dtype == "float32" && out_dtype == "float16") {
    error = launch(Type<float>{}, Type<__half>{});
  } else if (dtype == out_dtype) {
    error = with_dtype(dtype, [&](auto type) { return launch(type, type); });
  } else {
    throw py::type_error("the mean of " + dtype + " cannot be written as " + out_dtype);
  }
  throw_if_failed(error, "the mean over neighbours");
}

void backward(const Call& call, const std::string& dtype, uintptr_t sorted_sources, uintptr_t order,
              uintptr_t grad_mean, int64_t grad_mean_stride, uintptr_t grad_own, int64_t grad_own_stride,
              uintptr_t x, int64_t x_stride, int64_t dim, uintptr_t grad_x, uintptr_t workspace) {
  py::gil_scoped_release nogil;
  const DeviceGuard guard(call.device);
  throw_if_failed(guard.error(), "choosing the device of the aggregation");
  const cudaError_t error = with_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return with_index_types(call.index_bytes, call.id_bytes, [&](auto p, auto i) {
      using P = typename decltype(p)::type;
      using I = typename decltype(i)::type;
      return launch_mean_backward(
          call.block<P, I>(), reinterpret_cast<const I*>(sorted_sources),
          reinterpret_cast<const int64_t*>(order), rows<const T>(grad_mean, grad_mean_stride),
          rows<const T>(grad_own, grad_own_stride), rows<const T>(x, x_stride), dim, rows<T>(grad_x, dim),
          call.activation(), reinterpret_cast<void*>(workspace), reinterpret_cast<cudaStream_t>(call.stream));
    });
  });
  throw_if_failed(error, "the gradient of the mean over neighbours");
}

}  // namespace

void bind_aggregate_cuda(py::module_& m) {
  py::class_<Call>(m, "CudaMeanCall")
      .def(py::init([](uintptr_t indptr, uintptr_t indices, int index_bytes, int id_bytes, int64_t num_dst,
                       int64_t num_src, int64_t num_edges, bool relu, uint32_t threshold, uint32_t key,
                       int device, uintptr_t stream) {
        if (threshold > 65535)
          throw py::value_error("threshold is " + std::to_string(threshold) + "; it must be at most 65535");
        return Call{indptr,    indices, index_bytes, id_bytes, num_dst, num_src,
                    num_edges, relu,    threshold,   key,      device,  stream};
      }))
      .def("forward", &forward)
      .def("backward", &backward);
  m.def("cuda_mean_forward_workspace", &mean_forward_workspace);
  m.def("cuda_mean_backward_workspace", &mean_backward_workspace);
  m.attr("cuda_mean_long_row") = kLongRow;
}

}  // namespace loader
