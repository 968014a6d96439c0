// Exports the order of an epoch on the GPU.
#include "bindings/gpu.h"
#include "bindings/items.h"
#include "bindings/views.h"
#include "items/cuda/order.h"

namespace loader {
namespace {

void take_items(int64_t num_items, uint64_t key, int64_t first, int64_t length, int64_t stride,
                py::handle out, StreamHandle stream) {
  const auto items = view<int64_t>(out, "out", -1, kGpu);  // [count]
  const Runs runs = checked_runs(num_items, first, length, stride, items.size);
  const int device = device_index(out);
  doing("ordering items on the GPU", [&] {
    const gpu::OnDevice current(device);
    launch_items_at(Permutation(num_items, key), runs, items.data, device, stream_of(stream));
  });
}

}  // namespace

void bind_items_cuda(py::module_& m) {
  m.def("cuda_items_at", &take_items, py::arg("num_items"), py::arg("key"), py::arg("first"),
        py::arg("length"), py::arg("stride"), py::arg("out"), py::arg("stream"));
}

}  // namespace loader
