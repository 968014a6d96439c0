// How a sampler picks, as Python says it: checked, with the arrays that it reads.
#pragma once

#include <utility>
#include <variant>

#include "bindings/views.h"
#include "disk/faults.h"
#include "sampler/sampler.h"

namespace loader {

// The address of `array` [num_edges], which a sampler reads at `place`.
template <typename T>
const T* read_by_sampler(const py::object& array, const char* name, int64_t num_edges, const Place& place) {
  return view_to_read<const T>(array, name, num_edges, place).data;
}

// The tables of all lists of a graph to pick by weight, from `make_weight_tables`.
struct WeightTables {
  py::object cells, ends;  // [num_edges] int64

  AnyChoice choice(bool replace, int64_t num_edges, const Place& place) const {
    return WeightedChoice{
        replace,
        reinterpret_cast<const AliasCell*>(read_by_sampler<int64_t>(cells, "cells", num_edges, place)),
        reinterpret_cast<const uint64_t*>(read_by_sampler<int64_t>(ends, "ends", num_edges, place))};
  }
};

// The heaviest entries first, from `order_by_weight`.
struct WeightOrder {
  py::object order;  // [num_edges] int32

  AnyChoice choice(bool replace, int64_t num_edges, const Place& place) const {
    if (replace) throw py::value_error("the heaviest neighbors are picked once: replace must be false");
    return TopKChoice{
        reinterpret_cast<const uint32_t*>(read_by_sampler<int32_t>(order, "order", num_edges, place))};
  }
};

struct Labor {
  bool layer_dependency;
  uint32_t batch_dependency;
  uint64_t turns_key;

  AnyChoice choice(bool replace, int64_t, const Place&) const {
    if (replace) throw py::value_error("LABOR picks a neighbor once: replace must be false");
    if (batch_dependency < 1) throw py::value_error("batch_dependency is 0; it must be at least 1");
    return LaborChoice{layer_dependency, batch_dependency, turns_key};
  }
};

// By weight without tables.
struct Race {
  py::object weights;  // [num_edges] float32 or float64

  AnyChoice choice(bool replace, int64_t num_edges, const Place& place) const {
    if (replace) throw py::value_error("a race picks a neighbor once: replace must be false");
    if (dtype_of(weights) == "torch.float32")
      return RaceChoice{read_by_sampler<float>(weights, "weights", num_edges, place), nullptr};
    return RaceChoice{nullptr, read_by_sampler<double>(weights, "weights", num_edges, place)};
  }
};

// The choice that `how` says: one of the above, or None for uniform picks. Its arrays are the caller's to
// keep.
inline AnyChoice make_choice(const py::object& how, bool replace, int64_t num_edges,
                             const Place& place = "cpu") {
  if (how.is_none()) return UniformChoice{replace};
  if (py::isinstance<WeightTables>(how))
    return how.cast<const WeightTables&>().choice(replace, num_edges, place);
  if (py::isinstance<WeightOrder>(how))
    return how.cast<const WeightOrder&>().choice(replace, num_edges, place);
  if (py::isinstance<Labor>(how)) return how.cast<const Labor&>().choice(replace, num_edges, place);
  if (py::isinstance<Race>(how)) return how.cast<const Race&>().choice(replace, num_edges, place);
  throw py::type_error("picks is a " + std::string(py::str(py::type::of(how).attr("__name__"))) +
                       "; it must be WeightTables, WeightOrder, Labor, Race or None");
}

// What a sampler on the CPU reads of a graph: its lists, and the weights of a race, which may be mapped, too.
// `Choice`: a variant that has RaceChoice.
template <typename P, typename N, typename Choice>
ListBytes read_bytes(View<const P> offsets, View<const N> sources, const Choice& choice) {
  ListBytes read(offsets.data, offsets.size, sources.data, sources.size);
  if (const auto* const race = std::get_if<RaceChoice>(&choice)) {
    if (race->floats)
      read.add(race->floats, sources.size);
    else
      read.add(race->doubles, sources.size);
  }
  return read;
}

}  // namespace loader
