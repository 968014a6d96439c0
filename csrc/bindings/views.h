// Checked views: what crosses from Python into the core is a pointer whose type, length, layout and device
// were looked at. Tensors are read through their Python attributes, so no torch header is needed.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace loader {

namespace py = pybind11;

// The type of device whose memory kernels read and write; tests run them on the host.
#ifndef LOADER_KERNELS_DEVICE
#define LOADER_KERNELS_DEVICE "cuda"
#endif
constexpr const char* kGpu = LOADER_KERNELS_DEVICE;

// What crosses as a bare address, since no tensor says what it is: a CUDA stream, by torch's handle; where a
// GPU sees pinned memory of the host (`CudaGatherer`); a function that Numba compiled (`WalkEngine.walk_by`);
// and ranges of mapped files, which are compared with others and not read (`watch_file`, `require_whole`).
using StreamHandle = uintptr_t;

template <typename T>
constexpr const char* dtype_name() {
  if constexpr (std::is_same_v<T, float>) return "torch.float32";
  if constexpr (std::is_same_v<T, double>) return "torch.float64";
  if constexpr (std::is_same_v<T, int32_t>) return "torch.int32";
  if constexpr (std::is_same_v<T, int64_t>) return "torch.int64";
  if constexpr (std::is_same_v<T, uint8_t>) return "torch.uint8";
  if constexpr (std::is_same_v<T, int16_t>) return "torch.int16";
}

// Names of attributes of tensors, made once: to make a name takes several times as long as to get its
// attribute.
struct AttributeNames {
  static PyObject* of(const char* name) { return PyUnicode_InternFromString(name); }
  PyObject *const is_cpu = of("is_cpu"), *const is_cuda = of("is_cuda"), *const is_meta = of("is_meta");
  PyObject *const get_device = of("get_device"), *const dtype = of("dtype"), *const shape = of("shape");
  PyObject *const is_contiguous = of("is_contiguous"), *const dim = of("dim"), *const numel = of("numel");
  PyObject *const element_size = of("element_size"), *const data_ptr = of("data_ptr");
  PyObject* const stride = of("stride");
};
inline const AttributeNames& attribute_names() {
  static const AttributeNames names;
  return names;
}

inline py::object get_attribute(py::handle tensor, PyObject* name) {
  PyObject* const found = PyObject_GetAttr(tensor.ptr(), name);
  if (!found) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(found);
}
inline py::object call_method(py::handle tensor, PyObject* name) {
  PyObject* const found = PyObject_CallMethodNoArgs(tensor.ptr(), name);
  if (!found) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(found);
}
inline int64_t call_for_int(py::handle tensor, PyObject* name) {
  return call_method(tensor, name).cast<int64_t>();
}

inline std::string dtype_of(py::handle tensor) {
  return py::str(get_attribute(tensor, attribute_names().dtype));
}

// A torch.dtype by its name. There is one object of each, which lives as long as torch.
class KnownDtype {
 public:
  explicit KnownDtype(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  bool is(const py::object& dtype) const { return dtype && dtype.ptr() == object(); }
  // Of what is no tensor, too: it has no type.
  bool is_of(py::handle tensor) const {
    const auto found =
        py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor.ptr(), attribute_names().dtype));
    if (!found) PyErr_Clear();
    return is(found);
  }

 private:
  // nullptr if this torch has no such type.
  PyObject* object() const {
    PyObject* known = known_.load(std::memory_order_relaxed);
    if (known || name_.rfind("torch.", 0) != 0) return known;
    const auto torch = py::module_::import("torch");
    known = PyObject_GetAttrString(torch.ptr(), name_.c_str() + sizeof("torch.") - 1);
    if (!known) return PyErr_Clear(), nullptr;
    known_.store(known, std::memory_order_relaxed);
    return known;
  }

  const std::string name_;
  mutable std::atomic<PyObject*> known_{nullptr};
};

template <typename T>
bool has_dtype(py::handle tensor) {
  static const KnownDtype dtype(dtype_name<std::remove_const_t<T>>());
  return dtype.is_of(tensor);
}

// Where a tensor has to lie: a type of device ("cpu", "cuda" or "meta") and, if it matters, which GPU.
struct Place {
  Place(const char* type, int index = -1) : type(type), index(index) {}
  const char* type;
  int index;
};

// Throws ValueError unless `tensor` lies there.
inline void check_place(py::handle tensor, const char* name, const Place& place) {
  const AttributeNames& all = attribute_names();
  const std::string_view type = place.type;
  PyObject* const lies = PyObject_GetAttr(tensor.ptr(), type == "cuda"  ? all.is_cuda
                                                        : type == "cpu" ? all.is_cpu
                                                                        : all.is_meta);
  if (!lies) {
    PyErr_Clear();
    throw py::type_error(std::string(name) + " is " + Py_TYPE(tensor.ptr())->tp_name +
                         "; it must be a tensor");
  }
  Py_DECREF(lies);  // True and False stay
  if (lies != Py_True)
    throw py::value_error(std::string(name) + " lies on " +
                          tensor.attr("device").attr("type").cast<std::string>() + "; it must lie on " +
                          place.type);
  if (place.index < 0 || type != "cuda") return;
  if (const auto index = call_for_int(tensor, all.get_device); index != place.index)
    throw py::value_error(std::string(name) + " lies on cuda:" + std::to_string(index) +
                          "; it must lie on cuda:" + std::to_string(place.index));
}

// The same, and ValueError unless it is contiguous.
inline void check_layout(py::handle tensor, const char* name, const Place& place) {
  check_place(tensor, name, place);
  if (call_method(tensor, attribute_names().is_contiguous).ptr() != Py_True)
    throw py::value_error(std::string(name) + " is not contiguous; call .contiguous() first");
}

// Throws ValueError unless `tensor` has one dimension.
inline void check_dimension(py::handle tensor, const char* name) {
  const auto dims = call_for_int(tensor, attribute_names().dim);
  if (dims != 1)
    throw py::value_error(std::string(name) + " has " + std::to_string(dims) + " dimensions; it must have 1");
}

// Throws ValueError unless `numel` is `size`; any number is, if that is < 0.
inline void check_size(const char* name, int64_t numel, int64_t size) {
  if (size >= 0 && numel != size)
    throw py::value_error(std::string(name) + " has " + std::to_string(numel) + " elements; it must have " +
                          std::to_string(size));
}

// Where the `numel` elements of a tensor lie, on a device of type `device`; those of a meta tensor lie
// nowhere.
inline uintptr_t address_of(py::handle tensor, const char* name, int64_t numel, std::string_view device) {
  const auto address = call_method(tensor, attribute_names().data_ptr).cast<uintptr_t>();
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
View<T> view(py::handle tensor, const char* name, int64_t size = -1, const Place& place = "cpu") {
  check_layout(tensor, name, place);
  if (!has_dtype<T>(tensor))
    throw py::type_error(std::string(name) + " has dtype " + dtype_of(tensor) + "; it must be " +
                         dtype_name<std::remove_const_t<T>>());
  const auto numel = call_for_int(tensor, attribute_names().numel);
  check_size(name, numel, size);
  return {reinterpret_cast<T*>(address_of(tensor, name, numel, place.type)), numel};
}

// The address of a tensor that may be None; nullptr then.
template <typename T>
T* optional_view(py::handle tensor, const char* name, int64_t size, const Place& place) {
  return tensor.is_none() ? nullptr : view<T>(tensor, name, size, place).data;
}

// Integers of one of two types.
struct IntegersView {
  void* data;
  int64_t size;
  bool wide;  // int64, not int32
};

inline IntegersView integers_view(py::handle tensor, const char* name, int64_t size, const Place& place) {
  check_layout(tensor, name, place);
  const bool wide = has_dtype<int64_t>(tensor);
  if (!wide && !has_dtype<int32_t>(tensor))
    throw py::type_error(std::string(name) + " has dtype " + dtype_of(tensor) +
                         "; it must be torch.int32 or torch.int64");
  const auto numel = call_for_int(tensor, attribute_names().numel);
  check_size(name, numel, size);
  return {reinterpret_cast<void*>(address_of(tensor, name, numel, place.type)), numel, wide};
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

// The same of a tensor that kernels read in place. It lies in the memory of GPU `index` (< 0: of any GPU), or
// in pinned host memory.
template <typename T>
View<T> gpu_view(py::handle tensor, const char* name, int64_t size, int index) {
  const auto type = tensor.attr("device").attr("type").cast<std::string>();
  if (type == "cpu" && !is_pinned(tensor))
    throw py::value_error(std::string(name) + " lies on cpu and is not pinned; a GPU reads it on " + kGpu +
                          " or in pinned memory");
  return view<T>(tensor, name, size, type == "cpu" ? Place("cpu") : Place(kGpu, index));
}

// The same of a tensor that is read at `place`: on the CPU or by a GPU.
template <typename T>
View<T> view_to_read(py::handle tensor, const char* name, int64_t size, const Place& place) {
  return place.type == std::string_view("cpu") ? view<T>(tensor, name, size)
                                               : gpu_view<T>(tensor, name, size, place.index);
}

// A tensor of any element type as rows of bytes.
struct RowsView {
  uint8_t* data;
  int64_t num_rows;
  int64_t row_bytes;
};

// The rows of `tensor` [num_rows, ...], contiguous.
inline RowsView rows_view(py::handle tensor, const char* name, const Place& place = "cpu") {
  check_layout(tensor, name, place);
  const auto shape = get_attribute(tensor, attribute_names().shape).cast<py::tuple>();
  if (shape.empty()) throw py::value_error(std::string(name) + " has no dimension; it must have at least 1");
  auto bytes = call_for_int(tensor, attribute_names().element_size);
  for (size_t d = 1; d < shape.size(); ++d) bytes *= shape[d].cast<int64_t>();
  const auto rows = shape[0].cast<int64_t>();
  return {reinterpret_cast<uint8_t*>(address_of(tensor, name, bytes ? rows : 0, place.type)), rows, bytes};
}

// Rows of any element type whose elements are neighbors in memory, but which may lie apart.
struct StridedView {
  uint8_t* data;
  int64_t num_rows, columns, stride;  // in elements
};

// Those of `tensor` [num_rows, columns].
inline StridedView strided_view(py::handle tensor, const char* name, const Place& place) {
  check_place(tensor, name, place);
  const auto shape = get_attribute(tensor, attribute_names().shape).cast<py::tuple>();
  if (shape.size() != 2)
    throw py::value_error(std::string(name) + " has " + std::to_string(shape.size()) +
                          " dimensions; it must have 2");
  const auto rows = shape[0].cast<int64_t>(), columns = shape[1].cast<int64_t>();
  const auto strides = call_method(tensor, attribute_names().stride).cast<py::tuple>();
  if (rows > 0 && columns > 1 && strides[1].cast<int64_t>() != 1)
    throw py::value_error(std::string(name) + " is not contiguous along its rows; call .contiguous() first");
  const auto at = address_of(tensor, name, rows * columns, place.type);
  return {reinterpret_cast<uint8_t*>(at), rows, columns, strides[0].cast<int64_t>()};
}

// The bytes of a tensor of any type.
inline View<uint8_t> bytes_view(py::handle tensor, const char* name, const Place& place = "cpu") {
  check_layout(tensor, name, place);
  const auto numel = call_for_int(tensor, attribute_names().numel);
  const auto at = address_of(tensor, name, numel, place.type);
  return {reinterpret_cast<uint8_t*>(at), numel * call_for_int(tensor, attribute_names().element_size)};
}

}  // namespace loader
