// Exports the order of an epoch.
#include "bindings/items.h"

#include "bindings/unlocked.h"
#include "bindings/views.h"
#include "items/order.h"

namespace loader {
namespace {

void take_items(int64_t num_items, uint64_t key, int64_t first, int64_t length, int64_t stride,
                py::handle out) {
  const auto items = view<int64_t>(out, "out");  // [count]
  const Runs runs = checked_runs(num_items, first, length, stride, items.size);
  const Unlocked unlocked;
  items_at(Permutation(num_items, key), runs, items.data);
}

}  // namespace

void bind_items(py::module_& m) {
  m.def(
      "order_key", [](uint64_t seed, uint64_t epoch) { return batch_key(seed, epoch, 0, Purpose::kOrder); },
      py::arg("seed"), py::arg("epoch"));
  m.def("items_at", &take_items, py::arg("num_items"), py::arg("key"), py::arg("first"), py::arg("length"),
        py::arg("stride"), py::arg("out"));
}

}  // namespace loader
