// What every sampler takes and gives: P is the type of edge-valued arrays (indptr, edge ids), N of vertices.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "graph/hetero.h"
#include "graph/lists.h"
#include "sampler/choice.h"

namespace loader {

using AnyChoice = std::variant<UniformChoice, WeightedChoice, TopKChoice, LaborChoice, RaceChoice>;

// Calls `f` with a choice, or with the one that a variant holds.
template <typename Choice, typename F>
decltype(auto) with_choice(const Choice& choice, const F& f) {
  return f(choice);
}
template <typename F>
decltype(auto) with_choice(const AnyChoice& choice, const F& f) {
  return std::visit(f, choice);
}

template <typename Choice>
struct SampleOptionsOf {
  std::vector<int64_t> fanouts;  // hop order; of HeteroLists the widest of each hop
  Choice choice;
  bool edge_ids;
  BatchKeys keys;
  bool once = false;     // a vertex' neighbors are picked at one hop only: the one after the hop that met it
  bool in_file = false;  // a part of the lists may be on disk only, see PagesAhead
  // A vertex may be a seed several times, see lane_of_copy: with `once`, of the fused sampler.
  bool copies = false;
  // Of HeteroLists: [hops, num_relations], by HeteroRow::relation.
  int64_t num_relations = 0;
  std::vector<int64_t> relation_fanouts{};

  int64_t fanout(const VertexRow&, int hop) const { return fanouts[hop - 1]; }
  int64_t fanout(const HeteroRow& row, int hop) const {
    return relation_fanouts[(hop - 1) * num_relations + row.relation];
  }
  int hops() const { return static_cast<int>(fanouts.size()); }
};
using SampleOptions = SampleOptionsOf<AnyChoice>;

struct SampleSizes {
  std::vector<int64_t> frontiers;  // [hops + 1]: vertices within h hops
  std::vector<int64_t> edges;      // [hops], hop order
  std::vector<int64_t> rows{};     // [hops]: lists that each hop picks from
};

// Outputs of the sizes that SampleSizes announced, hop order; what is not asked for is null. `rows` is the
// local id of each edge's destination.
template <typename P, typename N>
struct BlockOut {
  P* indptr;
  N* indices;
  P* edge_ids;
  N* rows = nullptr;
};

template <typename P, typename N>
struct SampleOut {
  N* nodes;
  std::vector<BlockOut<P, N>> blocks;
};

template <typename N>
void check_seed(N seed, int64_t num_nodes) {
  if (seed < 0 || seed >= num_nodes)
    throw std::invalid_argument("seeds holds node " + std::to_string(seed) + "; valid ids are 0 to " +
                                std::to_string(num_nodes - 1));
}

template <typename N>
[[noreturn]] void throw_duplicate_seed(N seed) {
  throw std::invalid_argument("seeds holds node " + std::to_string(seed) +
                              " more than once; seeds must be distinct (torch.unique)");
}

[[noreturn]] inline void throw_bad_weight(int64_t at, double weight) {
  throw std::invalid_argument("edge_weights[" + std::to_string(at) + "] is " + std::to_string(weight) +
                              "; a weight must be finite and at least 0");
}

template <typename P>
void check_edge_count(int64_t edges) {
  if (edges > int64_t{std::numeric_limits<P>::max()})
    throw std::overflow_error("a block of " + std::to_string(edges) +
                              " edges exceeds 32-bit edge ids; use a smaller batch or smaller fanouts");
}

}  // namespace loader
