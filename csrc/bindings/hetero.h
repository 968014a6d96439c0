// The types of a graph's vertices and edges, as Python says them: checked.
#pragma once

#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bindings/views.h"
#include "sampler/sampler.h"

namespace loader {

class Types {
 public:
  // Of the vertices of a type: how many there are, and how many relations lead to them.
  using Entry = std::pair<int64_t, int32_t>;

  Types() = default;  // of a graph without types

  // `fanouts`: [hops][relations], relations in the order of the types that they lead to.
  Types(const std::vector<Entry>& types, std::vector<std::vector<int64_t>> fanouts, bool once)
      : fanouts_(std::move(fanouts)), once_(once) {
    if (types.empty() || types.size() > kMaxTypes)
      throw py::value_error("there are " + std::to_string(types.size()) + " types of nodes; 1 to " +
                            std::to_string(kMaxTypes) + " are possible");
    for (const auto& [vertices, relations] : types) {
      if (vertices < 0 || vertices > kMost || relations < 0 || relations > kMostRelations)
        throw py::value_error("a type has " + std::to_string(vertices) + " nodes and " +
                              std::to_string(relations) + " relations; at most " + std::to_string(kMost) +
                              " and " + std::to_string(kMostRelations) + " are possible");
      types_.push_back({num_vertices_, num_lists_, static_cast<int32_t>(num_relations_), relations});
      num_vertices_ += vertices;
      num_lists_ += vertices * relations;
      num_relations_ += relations;
      if (num_relations_ > kMostRelations)
        throw py::value_error("there are " + std::to_string(num_relations_) + " relations; at most " +
                              std::to_string(kMostRelations) + " are possible");
      if (num_vertices_ > kMost || num_lists_ > kMost)
        throw py::value_error("the types have more than " + std::to_string(kMost) + " nodes or lists");
    }
    for (const auto& hop : fanouts_) {
      if (static_cast<int64_t>(hop.size()) != num_relations_)
        throw py::value_error("a hop has " + std::to_string(hop.size()) + " fanouts; there are " +
                              std::to_string(num_relations_) + " relations");
      for (const int64_t k : hop)
        if (k != kAllNeighbors && (k < 0 || k > kMaxFanout))
          throw py::value_error("fanout " + std::to_string(k) + " is not possible: give 0 to " +
                                std::to_string(kMaxFanout) + ", or -1 for all neighbors");
    }
  }

  // Into each type.
  std::vector<int64_t> relations() const {
    std::vector<int64_t> all;
    for (const VertexType& type : types_) all.push_back(type.relations);
    return all;
  }

  // Of each hop the most neighbors that a relation picks, and at least 1. Bit h: some take all at hop h.
  std::pair<std::vector<int64_t>, uint32_t> most() const {
    std::vector<int64_t> all;
    uint32_t takes_all = 0;
    for (const auto& hop : fanouts_) {
      int64_t most = 1;
      for (const int64_t k : hop) {
        most = std::max(most, k);
        if (k == kAllNeighbors) takes_all |= 1u << all.size();
      }
      all.push_back(most);
    }
    return {all, takes_all};
  }

  // Bit h: each relation takes all neighbors or none at hop h.
  uint32_t takes_whole() const {
    uint32_t whole = 0;
    for (size_t h = 0; h < fanouts_.size(); ++h)
      if (std::all_of(fanouts_[h].begin(), fanouts_[h].end(), [](int64_t k) { return k <= 0; }))
        whole |= 1u << h;
    return whole;
  }

  // The same, but all neighbors where a relation takes them.
  std::vector<int64_t> widest() const {
    auto [all, takes_all] = most();
    for (size_t h = 0; h < all.size(); ++h)
      if (takes_all >> h & 1) all[h] = kAllNeighbors;
    return all;
  }

  void choose(SampleOptions& options) const {
    options.once = once_;
    options.num_relations = num_relations_;
    for (const auto& hop : fanouts_)
      options.relation_fanouts.insert(options.relation_fanouts.end(), hop.begin(), hop.end());
  }

  int64_t num_vertices() const { return num_vertices_; }
  int64_t num_relations() const { return num_relations_; }
  bool once() const { return once_; }

  template <typename P, typename N>
  GraphOf<HeteroLists<P, N>> graph(View<const P> offsets, const N* indices) const {
    check_lists(offsets.size - 1);
    GraphOf<HeteroLists<P, N>> graph{{offsets.data, indices, static_cast<int>(types_.size()), {}},
                                     num_vertices_};
    std::copy(types_.begin(), types_.end(), graph.lists.types);
    return graph;
  }

 private:
  static constexpr int64_t kMost = int64_t{1} << 46;
  static constexpr int32_t kMostRelations = 1 << 14;  // numbers of them fit 16 bits of a row

  void check_lists(int64_t lists) const {
    if (lists != num_lists_)
      throw py::value_error("indptr is for " + std::to_string(lists) + " lists; the types have " +
                            std::to_string(num_lists_));
  }

  std::vector<VertexType> types_;
  std::vector<std::vector<int64_t>> fanouts_;
  bool once_ = false;
  int64_t num_vertices_ = 0, num_lists_ = 0, num_relations_ = 0;
};

}  // namespace loader
