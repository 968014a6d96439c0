// What the bindings of induced subgraphs on CPU and GPU have in common.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "bindings/views.h"
#include "induced/edges_between.h"

namespace loader {

// What Python asks for, checked but for the values of arrays.
class InducedQuestion {
 public:
  // lists: (indptr, indices). sets, rows, of_rows: may be None.
  InducedQuestion(const py::tuple& lists, int64_t num_ids, py::object nodes, py::object sets, py::object rows,
                  py::object of_rows, int64_t num_sets, const Place& place)
      : num_ids_(num_ids),
        nodes_(std::move(nodes)),
        sets_(std::move(sets)),
        rows_(std::move(rows)),
        of_rows_(std::move(of_rows)),
        num_sets_(num_sets),
        place_(place) {
    if (lists.size() != 2) throw py::value_error("lists must be (indptr, indices)");
    indptr_ = lists[0];
    indices_ = lists[1];
    wide_edges_ = dtype_of(indptr_) == "torch.int64";
    wide_nodes_ = dtype_of(indices_) == "torch.int64";
    if (num_ids < 0 || num_sets < 0) throw py::value_error("num_ids and num_sets must not be negative");
    if (num_sets > INT32_MAX || (num_sets > 0 && num_ids >= std::numeric_limits<int64_t>::max() / num_sets))
      throw py::value_error(std::to_string(num_sets) + " sets of " + std::to_string(num_ids) +
                            " nodes are too many");
    if (rows_.is_none() && !of_rows_.is_none()) throw py::value_error("of_rows needs rows");
    if (!rows_.is_none() && sets_.is_none() != of_rows_.is_none())
      throw py::value_error("sets and of_rows need each other");
  }

  // f(asked, number of lists, number of entries) with the types of the lists.
  template <class F>
  void with_types(const F& f) const {
    const auto call = [&](const auto& asked) { f(asked, num_lists_, num_edges_); };
    if (wide_nodes_)
      call(asked<int64_t, int64_t>());
    else if (wide_edges_)
      call(asked<int64_t, int32_t>());
    else
      call(asked<int32_t, int32_t>());
  }

 private:
  // An array of lists may be read from pinned memory.
  template <typename T>
  View<const T> read(const py::object& tensor, const char* name) const {
    return view_to_read<const T>(tensor, name, -1, place_);
  }

  template <typename T>
  const T* optional(const py::object& tensor, const char* name, int64_t size) const {
    return tensor.is_none() ? nullptr : view<const T>(tensor, name, size, place_).data;
  }

  template <typename P, typename N>
  InducedAsked<P, N> asked() const {
    const auto offsets = read<P>(indptr_, "indptr");
    const auto sources = read<N>(indices_, "indices");
    if (offsets.size < 1) throw py::value_error("indptr is empty");
    num_lists_ = offsets.size - 1;
    num_edges_ = sources.size;
    const auto nodes = view<const N>(nodes_, "nodes", -1, place_);
    if (nodes.size >= INT32_MAX) throw py::value_error("there are 2**31 nodes or more");
    InducedAsked<P, N> all{};
    all.lists = {offsets.data, sources.data};
    all.num_ids = num_ids_;
    all.nodes = nodes.data;
    all.num_nodes = all.num_rows = nodes.size;
    all.num_sets = num_sets_;
    all.sets = optional<int32_t>(sets_, "sets", nodes.size);
    if (!rows_.is_none()) {
      const auto rows = view<const int64_t>(rows_, "rows", -1, place_);
      all.rows = rows.data;
      all.num_rows = rows.size;
      all.of_rows = optional<int32_t>(of_rows_, "of_rows", rows.size);
    }
    return all;
  }

  const int64_t num_ids_;
  const py::object nodes_, sets_, rows_, of_rows_;
  const int64_t num_sets_;
  const Place place_;
  py::object indptr_, indices_;
  bool wide_edges_ = false, wide_nodes_ = false;
  mutable int64_t num_lists_ = 0, num_edges_ = 0;
};

}  // namespace loader
