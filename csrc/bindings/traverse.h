// What the bindings of the traversals on CPU and GPU have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "bindings/views.h"
#include "graph/lists.h"
#include "traverse/rank.h"

namespace loader {

// Lists in memory of a type of device, as Python hands them over: (indptr, indices).
class TraversedLists {
 public:
  TraversedLists(const py::tuple& arrays, const char* name, const Place& place) : place_(place) {
    if (arrays.size() != 2) throw py::value_error(std::string(name) + " must be (indptr, indices)");
    indptr_ = arrays[0];
    indices_ = arrays[1];
    wide_edges_ = has_dtype<int64_t>(indptr_);
    wide_nodes_ = has_dtype<int64_t>(indices_);
    with_types([&](auto edge, auto vertex) {
      check_dimension(indptr_, "indptr");
      const auto offsets = read<const decltype(edge)>(indptr_, "indptr");
      const auto sources = read<const decltype(vertex)>(indices_, "indices");
      if (offsets.size < 1) throw py::value_error("indptr is empty");
      num_nodes_ = offsets.size - 1;
      num_edges_ = sources.size;
      indptr_at_ = offsets.data;
      indices_at_ = sources.data;
      if (place_.type == std::string_view("cpu")) check_offsets(offsets, num_edges_);
    });
  }

  int64_t num_nodes() const { return num_nodes_; }
  int64_t num_edges() const { return num_edges_; }

  // f(P{}, N{}) of the types of places and vertices.
  template <class F>
  void with_types(const F& f) const {
    if (wide_nodes_)
      f(int64_t{}, int64_t{});
    else if (wide_edges_)
      f(int64_t{}, int32_t{});
    else
      f(int32_t{}, int32_t{});
  }

  template <typename P, typename N>
  PlainGraph<P, N> lists() const {
    return {{static_cast<const P*>(indptr_at_), static_cast<const N*>(indices_at_)}, num_nodes_};
  }

  // An array that is read where it lies: a GPU reads pinned memory, too.
  template <typename T>
  View<T> read(const py::object& tensor, const char* name, int64_t size = -1) const {
    return view_to_read<T>(tensor, name, size, place_);
  }

  // Throws unless the other lists are of the same vertices and types.
  void check_like(const TraversedLists& other) const {
    if (num_nodes_ != other.num_nodes_ || wide_edges_ != other.wide_edges_ ||
        wide_nodes_ != other.wide_nodes_)
      throw py::value_error("the lists of both directions differ in nodes or types");
  }

 private:
  const Place place_;
  py::object indptr_, indices_;
  bool wide_edges_ = false, wide_nodes_ = false;
  int64_t num_nodes_ = 0, num_edges_ = 0;
  const void *indptr_at_ = nullptr, *indices_at_ = nullptr;
};

// `own`: shares of 2^62, as the int64 that Python has; null if all vertices have the same.
inline RankLaw checked_law(uint64_t damping, int64_t num_nodes, uint64_t close, int64_t max_iter,
                           const int64_t* own) {
  if (damping > kWhole) throw py::value_error("damping is " + std::to_string(damping));
  if (max_iter < 1 || max_iter > INT32_MAX) throw py::value_error("max_iter is " + std::to_string(max_iter));
  return {damping, num_nodes ? kWhole / static_cast<uint64_t>(num_nodes) : 0,
          reinterpret_cast<const uint64_t*>(own), close, static_cast<int32_t>(max_iter)};
}

// f(W{}) of the type of weights.
template <class F>
void with_weight_type(const py::object& weights, const F& f) {
  const std::string type = dtype_of(weights);
  if (type == "torch.float32") return f(float{});
  if (type == "torch.float64") return f(double{});
  if (type == "torch.int32") return f(int32_t{});
  if (type == "torch.int64") return f(int64_t{});
  throw py::type_error("weights has dtype " + type + "; it must be float32, float64, int32 or int64");
}

}  // namespace loader
