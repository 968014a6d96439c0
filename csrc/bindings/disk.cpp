// loader._core.watch_file and its companions: what happens if a mapped file cannot be read any more.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "disk/faults.h"

namespace py = pybind11;

namespace loader {

void bind_disk(py::module_& m) {
  m.def("watch_file", &watch_file, py::arg("begin"), py::arg("length"), py::arg("handle"), py::arg("offset"),
        py::arg("path"));
  m.def("is_watched", &is_watched, py::arg("at"));
  m.def(
      "require_whole",
      [](uintptr_t begin, int64_t length) { require_whole(reinterpret_cast<const void*>(begin), length); },
      py::arg("begin"), py::arg("length"));
  m.def("forget_file", &forget_file, py::arg("number"));
}

}  // namespace loader
