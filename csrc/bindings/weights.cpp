// Exports the tables that picks by weight are made from, and what says how a sampler picks.
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/choice.h"
#include "bindings/unlocked.h"
#include "bindings/views.h"
#include "weights/cpu/tables.h"

namespace loader {
namespace {

// f(indptr, number of lists, weights) with the types that the tensors have.
template <typename F>
void with_types(const py::object& indptr, const py::object& weights, const F& f) {
  const auto with_both = [&](auto offsets, auto values) {
    check_offsets(offsets, values.size, "indptr", "weights");
    f(offsets.data, offsets.size - 1, values.data, values.size);
  };
  const auto with_offsets = [&](auto offsets) {
    if (dtype_of(weights) == "torch.float32")
      with_both(offsets, view<const float>(weights, "weights"));
    else
      with_both(offsets, view<const double>(weights, "weights"));
  };
  if (dtype_of(indptr) == "torch.int64")
    with_offsets(offsets_view<int64_t>(indptr));
  else
    with_offsets(offsets_view<int32_t>(indptr));
}

// Tables deal masses out, which only numbers above 0 have.
template <typename W>
void check_weights(const W* weights, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!(weights[i] > 0 && weights[i] <= std::numeric_limits<W>::max()))
      throw std::invalid_argument("weights[" + std::to_string(i) + "] is " + std::to_string(weights[i]) +
                                  "; tables are made of weights that are finite and above 0");
}

void make_weight_tables(const py::object& indptr, const py::object& weights, const py::object& cells,
                        const py::object& ends, int64_t num_threads) {
  check_num_threads(num_threads);
  ThreadPool pool(static_cast<int>(num_threads));
  with_types(indptr, weights, [&](auto offsets, int64_t lists, auto values, int64_t edges) {
    auto* const to_cells = reinterpret_cast<AliasCell*>(view<int64_t>(cells, "cells", edges).data);
    auto* const to_ends = reinterpret_cast<uint64_t*>(view<int64_t>(ends, "ends", edges).data);
    const Unlocked unlocked;
    check_weights(values, edges);
    make_tables(offsets, lists, values, to_cells, to_ends, pool);
  });
}

void order_by_weights(const py::object& indptr, const py::object& weights, const py::object& order,
                      int64_t num_threads) {
  check_num_threads(num_threads);
  ThreadPool pool(static_cast<int>(num_threads));
  with_types(indptr, weights, [&](auto offsets, int64_t lists, auto values, int64_t edges) {
    auto* const to = reinterpret_cast<uint32_t*>(view<int32_t>(order, "order", edges).data);
    const Unlocked unlocked;
    order_by_weight(offsets, lists, values, to, pool);
  });
}

}  // namespace

void bind_weights(py::module_& m) {
  m.def("make_weight_tables", &make_weight_tables, py::arg("indptr"), py::arg("weights"), py::arg("cells"),
        py::arg("ends"), py::arg("num_threads"));
  m.def("order_by_weight", &order_by_weights, py::arg("indptr"), py::arg("weights"), py::arg("order"),
        py::arg("num_threads"));
  m.def("turns_key", [](uint64_t seed) { return batch_key(seed, 0, 0, Purpose::kTurn); }, py::arg("seed"));
  py::class_<WeightTables>(m, "WeightTables")
      .def(py::init([](py::object cells, py::object ends) {
             return WeightTables{std::move(cells), std::move(ends)};
           }),
           py::arg("cells"), py::arg("ends"));
  py::class_<WeightOrder>(m, "WeightOrder")
      .def(py::init([](py::object order) { return WeightOrder{std::move(order)}; }), py::arg("order"));
  py::class_<Race>(m, "Race").def(py::init([](py::object weights) { return Race{std::move(weights)}; }),
                                  py::arg("weights"));
  py::class_<Labor>(m, "Labor")
      .def(py::init([](bool layer_dependency, uint32_t batch_dependency, uint64_t turns_key) {
             return Labor{layer_dependency, batch_dependency, turns_key};
           }),
           py::arg("layer_dependency"), py::arg("batch_dependency"), py::arg("turns_key"));
}

}  // namespace loader
