// Checked views: what crosses from Python into the core is a pointer whose type, length, layout and device
// were looked at. Tensors are read through their Python attributes, so no torch header is needed.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace loader {

namespace py = pybind11;

// The type of device whose memory kernels read and write; tests run them on the host.
#ifndef LOADER_KERNELS_DEVICE
#define LOADER_KERNELS_DEVICE "cuda"
#endif
constexpr const char* kGpu = LOADER_KERNELS_DEVICE;

template <typename T>
constexpr const char* dtype_name() {
  if constexpr (std::is_same_v<T, float>) return "torch.float32";
  if constexpr (std::is_same_v<T, double>) return "torch.float64";
  if constexpr (std::is_same_v<T, int32_t>) return "torch.int32";
  if constexpr (std::is_same_v<T, int64_t>) return "torch.int64";
  if constexpr (std::is_same_v<T, uint8_t>) return "torch.uint8";
  if constexpr (std::is_same_v<T, int16_t>) return "torch.int16";
}

inline std::string dtype_of(py::handle tensor) { return py::str(tensor.attr("dtype")); }

// Throws ValueError unless `tensor` is contiguous and lies on a device of type `device` ("cpu" or "cuda").
inline void check_layout(py::handle tensor, const char* name, const char* device) {
  const auto type = tensor.attr("device").attr("type").cast<std::string>();
  if (type != device)
    throw py::value_error(std::string(name) + " lies on " + type + "; it must lie on " + device);
  if (!tensor.attr("is_contiguous")().cast<bool>())
    throw py::value_error(std::string(name) + " is not contiguous; call .contiguous() first");
}

// Throws ValueError unless `tensor` has one dimension.
inline void check_dimension(py::handle tensor, const char* name) {
  const auto dims = tensor.attr("dim")().cast<int64_t>();
  if (dims != 1)
    throw py::value_error(std::string(name) + " has " + std::to_string(dims) + " dimensions; it must have 1");
}

// Where the `numel` elements of a tensor lie, on a device of type `device`; those of a meta tensor lie
// nowhere.
inline uintptr_t address_of(py::handle tensor, const char* name, int64_t numel, std::string_view device) {
  const auto address = tensor.attr("data_ptr")().cast<uintptr_t>();
  if (!address && numel && device != "meta")
    throw py::value_error(std::string(name) + " has " + std::to_string(numel) +
                          " elements and no memory: its storage was freed; give a tensor that has some");
  return address;
}

template <typename T>
struct View {
  T* data;
  int64_t size;
};

// A flat view of `tensor`; `size` < 0 accepts any number of elements.
template <typename T>
View<T> view(py::handle tensor, const char* name, int64_t size = -1, const char* device = "cpu") {
  check_layout(tensor, name, device);
  const auto dtype = dtype_of(tensor);
  if (dtype != dtype_name<std::remove_const_t<T>>())
    throw py::type_error(std::string(name) + " has dtype " + dtype + "; it must be " +
                         dtype_name<std::remove_const_t<T>>());
  const auto numel = tensor.attr("numel")().cast<int64_t>();
  if (size >= 0 && numel != size)
    throw py::value_error(std::string(name) + " has " + std::to_string(numel) + " elements; it must have " +
                          std::to_string(size));
  return {reinterpret_cast<T*>(address_of(tensor, name, numel, device)), numel};
}

// The offsets of lists, one more than there are lists: `lists` of them, or any number if that is < 0.
template <typename P>
View<const P> offsets_view(py::handle indptr, const char* name = "indptr", int64_t lists = -1) {
  check_dimension(indptr, name);
  const auto offsets = view<const P>(indptr, name, lists < 0 ? -1 : lists + 1);
  if (offsets.size < 1)
    throw py::value_error(std::string(name) + " is empty; it needs num_nodes + 1 entries");
  return offsets;
}

// Throws ValueError unless offsets rise from 0 to `num_entries`, the length of what is called `entries`.
template <typename P>
void check_offsets(View<const P> offsets, int64_t num_entries, const char* name = "indptr",
                   const char* entries = "indices") {
  const auto refuse = [name](int64_t at, P value, const std::string& must) {
    throw py::value_error(std::string(name) + "[" + std::to_string(at) + "] is " + std::to_string(value) +
                          "; it must be " + must);
  };
  const int64_t lists = offsets.size - 1;
  if (offsets.data[0] != 0) refuse(0, offsets.data[0], "0");
  if (offsets.data[lists] != num_entries)
    refuse(lists, offsets.data[lists], "len(" + std::string(entries) + ") = " + std::to_string(num_entries));
  for (int64_t begin = 0; begin < lists;) {  // in parts without a branch per list
    const int64_t end = std::min(begin + 4096, lists);
    bool falls = false;
    for (int64_t v = begin; v < end; ++v) falls |= offsets.data[v + 1] < offsets.data[v];
    for (int64_t v = begin; falls && v < end; ++v)
      if (offsets.data[v + 1] < offsets.data[v])
        refuse(v + 1, offsets.data[v + 1],
               "at least " + std::to_string(offsets.data[v]) + ", the one before it");
    begin = end;
  }
}

// Whether kernels can read a tensor in host memory.
inline bool is_pinned(py::handle tensor) {
  return kGpu == std::string_view("cpu") || tensor.attr("is_pinned")().cast<bool>();
}

// The same of a tensor that kernels read where it lies: in GPU memory, or in pinned host memory.
template <typename T>
View<T> gpu_view(py::handle tensor, const char* name, int64_t size = -1) {
  const auto type = tensor.attr("device").attr("type").cast<std::string>();
  if (type == "cpu" && !is_pinned(tensor))
    throw py::value_error(std::string(name) + " lies on cpu and is not pinned; a GPU reads it on " + kGpu +
                          " or in pinned memory");
  return view<T>(tensor, name, size, type == "cpu" ? "cpu" : kGpu);
}

// A tensor of any element type as rows of bytes.
struct RowsView {
  uint8_t* data;
  int64_t num_rows;
  int64_t row_bytes;
};

// The rows of `tensor` [num_rows, ...], contiguous.
inline RowsView rows_view(py::handle tensor, const char* name, const char* device = "cpu") {
  check_layout(tensor, name, device);
  const auto shape = tensor.attr("shape").cast<py::tuple>();
  if (shape.empty()) throw py::value_error(std::string(name) + " has no dimension; it must have at least 1");
  auto bytes = tensor.attr("element_size")().cast<int64_t>();
  for (size_t d = 1; d < shape.size(); ++d) bytes *= shape[d].cast<int64_t>();
  const auto rows = shape[0].cast<int64_t>();
  return {reinterpret_cast<uint8_t*>(address_of(tensor, name, bytes ? rows : 0, device)), rows, bytes};
}

}  // namespace loader
