// Exports what a captured step on several types does before its layers: checks the tensors that
// loader/ops/captured_hetero_moves.py, mapped_rows.py and times_since.py own. Values of index arrays are
// trusted. Everything is launched on the given stream; nothing waits.
#include <pybind11/pybind11.h>

#include <string>
#include <tuple>

#include "bindings/gpu.h"
#include "bindings/views.h"
#include "layout/cuda/hops.h"

namespace loader {
namespace {

// Rows of a node of each segment; where the distinct nodes of each type are to begin; segment, place and type
// of each node with room; segment and place of each row.
using FixedPlaces =
    std::tuple<py::object, py::object, py::object, py::object, py::object, py::object, py::object>;
// indptr, indices, place among the distinct nodes (loaded: or None), tree (or None in both).
using HopArrays = std::tuple<py::object, py::object, py::object, py::object>;

void run_move_hops(const LaunchPlace& where, py::handle sizes, py::handle of_types, const FixedPlaces& fixed,
                   const HopArrays& loaded, const HopArrays& to) {
  const Place place{kGpu, std::get<0>(where)};
  const auto ids = [&](py::handle tensor, const char* name, int64_t size) {
    return view<const int64_t>(tensor, name, size, place);
  };
  const auto& [slots, first, segment, place_of, type, segment_of_row, place_of_row] = fixed;
  const auto& [indptr, indices, distinct, tree] = loaded;
  const auto& [to_indptr, to_indices, to_distinct, to_tree] = to;
  const auto of_slots = ids(slots, "slots", -1), of_first = ids(first, "first", -1);
  const auto of_nodes = ids(segment, "segment", -1), of_rows = ids(segment_of_row, "segment_of_row", -1);
  const auto entries = view<const int32_t>(indices, "indices", -1, place);
  const auto begins = view<const int32_t>(indptr, "indptr", -1, place);
  if (begins.size <= of_rows.size)
    throw py::value_error("indptr has " + std::to_string(begins.size) + " elements; it must have more than " +
                          std::to_string(of_rows.size));
  if (of_slots.size == 0) throw py::value_error("slots is empty; it must have an element for each segment");
  if (tree.is_none() != to_tree.is_none())
    throw py::value_error("tree must be loaded where it is written, and nowhere else");
  const int64_t* const columns = ids(sizes, "sizes", 7 * of_slots.size).data;
  const auto column = [&](int i) { return columns + i * of_slots.size; };
  MovedHops args{};
  args.begin = column(0);
  args.size = column(1);
  args.row = column(2);
  args.edges = column(3);
  args.end = column(4);
  args.shift = column(5);
  args.of_type = column(6);
  args.slots = of_slots.data;
  args.of_types = ids(of_types, "of_types", of_first.size + 2).data;
  args.first = of_first.data;
  args.segments = of_slots.size;
  args.types = of_first.size;
  args.segment = of_nodes.data;
  args.place = ids(place_of, "place", of_nodes.size).data;
  args.type = ids(type, "type", of_nodes.size).data;
  args.segment_of_row = of_rows.data;
  args.place_of_row = ids(place_of_row, "place_of_row", of_rows.size).data;
  args.nodes = of_nodes.size;
  args.rows = of_rows.size;
  args.entries = entries.size;
  args.indptr = begins.data;
  args.indices = entries.data;
  args.distinct = optional_view<const int32_t>(distinct, "distinct", args.nodes, place);
  args.tree = optional_view<const int32_t>(tree, "tree", args.nodes, place);
  args.to_indptr = view<int32_t>(to_indptr, "the new indptr", args.rows + 1, place).data;
  args.to_indices = view<int32_t>(to_indices, "the new indices", args.entries, place).data;
  args.to_distinct = view<int64_t>(to_distinct, "the new distinct", args.nodes, place).data;
  args.to_tree = optional_view<int64_t>(to_tree, "the new tree", args.nodes, place);
  launching("moving hops on the GPU", where,
            [&](int device, gpu::Stream stream) { launch_moved_hops(args, device, stream); });
}

// indptr, indices, and the place of each source among the distinct nodes.
using MappedLists = std::tuple<py::object, py::object, py::object>;
// of_node [2, nodes], of_row [2, rows + 1], node_of_row [rows + 1], first_row [nodes + 1].
using MappedPlaces = std::tuple<py::object, py::object, py::object, py::object>;

void run_map_entries(const LaunchPlace& where, const MappedLists& lists, const MappedPlaces& places,
                     py::handle begins, py::handle found) {
  const Place place{kGpu, std::get<0>(where)};
  const auto ids = [&](py::handle tensor, const char* name, int64_t size) {
    return view<const int64_t>(tensor, name, size, place).data;
  };
  const auto& [indptr, indices, row] = lists;
  const auto& [of_node, of_row, node_of_row, first_row] = places;
  const auto begin_of = view<const int32_t>(indptr, "indptr", -1, place);
  const auto entries = view<const int32_t>(indices, "indices", -1, place);
  const int64_t nodes = view<const int64_t>(first_row, "first_row", -1, place).size - 1;
  const int64_t rows = begin_of.size - 1;
  if (nodes < 0 || rows < 0) throw py::value_error("indptr or first_row is empty; each ends with one more");
  const MappedEntries args{begin_of.data,
                           entries.data,
                           ids(row, "row", -1),
                           ids(of_node, "of_node", 2 * nodes),
                           ids(of_row, "of_row", 2 * (rows + 1)),
                           ids(node_of_row, "node_of_row", rows + 1),
                           ids(first_row, "first_row", nodes + 1),
                           nodes,
                           rows,
                           entries.size,
                           view<int32_t>(begins, "begins", nodes + 1, place).data,
                           view<int32_t>(found, "found", entries.size + nodes, place).data};
  launching("entries of products on the GPU", where,
            [&](int device, gpu::Stream stream) { launch_mapped_entries(args, device, stream); });
}

// Times of the seeds; tree and row of each node.
using TimedNodes = std::tuple<py::object, py::object, py::object>;

// Writes out [nodes, 2 half] from known [distinct nodes, 2] and frequency [half].
void run_encode_times(const LaunchPlace& where, const TimedNodes& nodes, py::handle known,
                      py::handle frequency, py::handle out) {
  const Place place{kGpu, std::get<0>(where)};
  const auto& [seed_times, tree, row] = nodes;
  const auto trees = view<const int64_t>(tree, "tree", -1, place);
  const auto half = view<const float>(frequency, "frequency", -1, place);
  const TimesSince args{view<const int64_t>(seed_times, "seed_times", -1, place).data,
                        trees.data,
                        view<const int64_t>(row, "row", trees.size, place).data,
                        view<const float>(known, "known", -1, place).data,
                        half.data,
                        trees.size,
                        half.size,
                        view<float>(out, "out", trees.size * 2 * half.size, place).data};
  launching("the encoding of times on the GPU", where,
            [&](int device, gpu::Stream stream) { launch_times_since(args, device, stream); });
}

}  // namespace

void bind_layout_cuda(py::module_& m) {
  m.def("cuda_move_hops", &run_move_hops);
  m.def("cuda_map_entries", &run_map_entries);
  m.def("cuda_encode_times", &run_encode_times);
}

}  // namespace loader
