// The sampler of trees on the CPU: threads share out the trees.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "arena.h"
#include "parallel.h"
#include "sampler/cpu/pick_list.h"
#include "sampler/sampler.h"
#include "sampler/trees.h"

namespace loader {

using TreeChoice = std::variant<UniformChoice, LastChoice, RaceChoice, LaborChoice>;

struct TreeOptions {
  int hops;
  int64_t num_relations;
  std::vector<int64_t> fanouts;  // [hops, num_relations], by HeteroRow::relation
  TreeChoice choice;
  bool paths, edge_ids;
  BoundRule bounds;
  BatchKeys keys{};

  int64_t fanout(const HeteroRow& row, int hop) const {
    return fanouts[(hop - 1) * num_relations + row.relation];
  }
};

template <typename Lists>
void pick_list(const LastChoice&, const Lists&, typename Lists::Edge, uint32_t degree, const Draws&,
               uint32_t fanout, uint32_t* out) {
  for (uint32_t i = 0; i < fanout; ++i) out[i] = degree - fanout + i;
}

struct TreeSizes : SampleSizes {
  std::vector<int64_t> new_by_type;  // [hops + 1][types], the seeds first
};

template <typename P, typename N>
struct TreesOut : SampleOut<P, N> {
  int32_t* trees;  // [vertices] the tree of each
};

// The vertices of one tree, while it is sampled: which of them are there, by open addressing.
template <typename N>
class TreeSet {
 public:
  // Empties the set.
  void clear() {
    for (const uint32_t at : filled_) table_[at] = 0;
    filled_.clear();
    vertices_.clear();
  }

  // The number of a vertex, which is put in if it is not there: they count from 0.
  uint32_t number_of(N v) {
    if (2 * (vertices_.size() + 1) > table_.size()) grow();
    const uint32_t at = place_of(v);
    if (table_[at] == 0) {
      table_[at] = static_cast<uint32_t>(vertices_.size()) + 1;
      vertices_.push_back(v);
      filled_.push_back(at);
    }
    return table_[at] - 1;
  }

  uint32_t size() const { return static_cast<uint32_t>(vertices_.size()); }
  N operator[](uint32_t number) const { return vertices_[number]; }

  // Puts the vertices from `first` on in ascending order. `renumbered[i]`: what number first + i became.
  void sort_from(uint32_t first, std::vector<uint32_t>& renumbered) {
    const uint32_t count = size() - first;
    order_.resize(count);
    for (uint32_t i = 0; i < count; ++i) order_[i] = {vertices_[first + i], i};
    std::sort(order_.begin(), order_.end());
    renumbered.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      renumbered[order_[i].second] = first + i;
      vertices_[first + i] = order_[i].first;
    }
    for (uint32_t i = 0; i < count; ++i) table_[filled_[first + i]] = renumbered[i] + 1;
    for (uint32_t i = 0; i < count; ++i) slots_.push_back(filled_[first + i]);
    for (uint32_t i = 0; i < count; ++i) filled_[renumbered[i]] = slots_[i];
    slots_.clear();
  }

 private:
  uint32_t place_of(N v) const {
    const auto mask = static_cast<uint32_t>(table_.size() - 1);
    auto at = static_cast<uint32_t>(static_cast<uint64_t>(v) * 0x9E3779B97F4A7C15u >> 32) &
              mask;  // Fibonacci hashing
    while (table_[at] != 0 && vertices_[table_[at] - 1] != v) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    if (table_.size() >= uint32_t{1} << 31)
      throw std::overflow_error("a tree has 2^30 nodes or more; use smaller fanouts");
    table_.assign(std::max<size_t>(2 * table_.size(), 64), 0);
    for (uint32_t i = 0; i < size(); ++i) {
      filled_[i] = place_of(vertices_[i]);
      table_[filled_[i]] = i + 1;
    }
  }

  std::vector<uint32_t> table_;           // number + 1, or 0
  std::vector<N> vertices_;               // by number
  std::vector<uint32_t> filled_, slots_;  // place in the table, by number
  std::vector<std::pair<N, uint32_t>> order_;
};

template <typename PT, typename NT>
class TreeSampler {
 public:
  using P = PT;
  using N = NT;
  using Lists = TimedLists<P, N>;

  explicit TreeSampler(std::shared_ptr<Workers> pool) : pool_(std::move(pool)), workers_(pool_->size()) {}

  // Samples and keeps the trees; returns the sizes of the arrays that `write` fills. `bounds`: of each seed,
  // or null if nothing has a time.
  TreeSizes sample(const GraphOf<Lists>& graph, const N* seeds, const Bound* bounds, int64_t num_seeds,
                   const TreeOptions& options);
  void write(const TreesOut<P, N>& out);

 private:
  static constexpr int64_t kPartsPerThread = 8;  // trees differ in size

  // What a hop found in the trees of a part, tree after tree.
  struct Hop {
    std::vector<N> vertices;
    std::vector<Bound> bounds;                // of the vertices, if they go with edges
    std::vector<size_t> ends;                 // of each tree, in `vertices`
    std::vector<uint32_t> counts;             // picks of each row, which is of a vertex of the hop before
    std::vector<uint32_t> picks;              // numbers of vertices in their tree
    std::vector<P> places;                    // of the picks in the lists
    std::vector<size_t> row_ends, pick_ends;  // of each tree, in `counts` and in `picks`

    void clear() {
      vertices.clear();
      bounds.clear();
      ends.clear();
      counts.clear();
      picks.clear();
      places.clear();
      row_ends.clear();
      pick_ends.clear();
    }
  };

  struct Part {
    int64_t first, end;     // trees
    std::vector<Hop> hops;  // from the seeds on
  };

  struct alignas(128) Worker {
    TreeSet<N> set;
    std::vector<uint32_t> renumbered;
    std::vector<uint32_t> numbers, of_type;
    std::vector<int> types;
    std::vector<int64_t> place_of;
  };

  int64_t trees() const { return num_seeds_; }
  int types() const { return graph_.lists.num_types; }
  // Entry of `found_` and of `edges_`: of the vertices of a type that a hop found in a tree.
  int64_t entry(int hop, int type, int64_t tree) const {
    return (int64_t{hop} * types() + type) * trees() + tree;
  }
  static size_t begin_of(const Hop& hop, int64_t local) { return local > 0 ? hop.ends[local - 1] : 0; }

  void each_tree(const std::function<void(Part&, int64_t tree, Worker&)>& f);
  void begin_tree(Part& part, int64_t tree);
  void sample_hop(Part& part, int64_t tree, int hop, Worker& worker);
  void pick(const TreeRow& row, Bound bound, int hop, std::vector<P>& places) const;
  void take_unique(Hop& found, size_t first_pick, Worker& worker);
  void take_paths(Hop& found, size_t first_pick, uint32_t first_number, Worker& worker);
  void write_tree(const Part& part, int64_t tree, Worker& worker, const TreesOut<P, N>& out) const;
  static void scan(std::vector<int64_t>& counts, size_t begin, size_t end, int64_t& sum) {
    for (size_t i = begin; i < end; ++i) sum += std::exchange(counts[i], sum);
  }

  const std::shared_ptr<Workers> pool_;
  std::vector<Worker> workers_;

  // Of the call under way.
  GraphOf<Lists> graph_{};
  TreeOptions options_{};
  const N* seeds_ = nullptr;
  const Bound* bounds_ = nullptr;
  int64_t num_seeds_ = 0;
  std::vector<Part> parts_;
  // By `entry`: how many vertices a hop found and, from hop 0 on, how many edges their rows have. Then where
  // they begin, and the end.
  std::vector<int64_t> found_, edges_;
  TreeSizes sizes_;
};

template <typename P, typename N>
TreeSizes TreeSampler<P, N>::sample(const GraphOf<Lists>& graph, const N* seeds, const Bound* bounds,
                                    int64_t num_seeds, const TreeOptions& options) {
  if (num_seeds > kMostTrees)
    throw std::invalid_argument("there are " + std::to_string(num_seeds) + " seeds; at most " +
                                std::to_string(kMostTrees) + " trees are sampled at once");
  int before = 0;
  for (int64_t i = 0; i < num_seeds; ++i) {
    check_seed(seeds[i], graph.num_nodes);
    const int type = graph.lists.type_of(seeds[i]);
    if (type < before) throw std::invalid_argument("seeds of several types are mixed; give type after type");
    before = type;
  }
  graph_ = graph;
  options_ = options;
  seeds_ = seeds;
  bounds_ = bounds;
  num_seeds_ = num_seeds;
  const int hops = options.hops;
  const int64_t parts =
      std::min({pool_->size() == 1 ? 1 : kPartsPerThread * pool_->size(), kMaxParts, num_seeds});
  parts_.resize(static_cast<size_t>(parts));
  for (int64_t i = 0; i < parts; ++i) {
    Part& part = parts_[static_cast<size_t>(i)];
    part.first = num_seeds * i / parts;
    part.end = num_seeds * (i + 1) / parts;
    part.hops.resize(static_cast<size_t>(hops) + 1);
    for (Hop& hop : part.hops) hop.clear();
  }
  const size_t of_hop = static_cast<size_t>(types() * num_seeds);
  found_.assign(of_hop * (static_cast<size_t>(hops) + 1) + 1, 0);
  edges_.assign(of_hop * static_cast<size_t>(hops) + 1, 0);
  int64_t vertices = 0, edges = 0;
  if (options.paths) {
    each_tree([&](Part& part, int64_t tree, Worker&) { begin_tree(part, tree); });
    scan(found_, 0, of_hop, vertices);
    for (int hop = 1; hop <= hops; ++hop) {
      each_tree([&](Part& part, int64_t tree, Worker& worker) { sample_hop(part, tree, hop, worker); });
      scan(found_, of_hop * static_cast<size_t>(hop), of_hop * (static_cast<size_t>(hop) + 1), vertices);
    }
    found_.back() = vertices;
  } else {
    each_tree([&](Part& part, int64_t tree, Worker& worker) {
      begin_tree(part, tree);
      worker.set.clear();
      worker.set.number_of(seeds_[tree]);
      for (int hop = 1; hop <= hops; ++hop) sample_hop(part, tree, hop, worker);
    });
    scan(found_, 0, found_.size(), vertices);
  }
  scan(edges_, 0, edges_.size(), edges);

  sizes_ = {};
  for (int hop = 0; hop <= hops; ++hop) {
    int64_t rows = 0;
    for (int t = 0; t < types(); ++t) {
      const int64_t found = found_[entry(hop, t + 1, 0)] - found_[entry(hop, t, 0)];
      sizes_.new_by_type.push_back(found);
      rows += found * graph_.lists.types[t].relations;
    }
    sizes_.frontiers.push_back(found_[entry(hop, types(), 0)]);
    if (hop == hops) break;
    sizes_.rows.push_back(rows);
    sizes_.edges.push_back(edges_[entry(hop, types(), 0)] - edges_[entry(hop, 0, 0)]);
    check_edge_count<P>(sizes_.edges.back());
  }
  if (sizes_.frontiers.back() > int64_t{std::numeric_limits<N>::max()})
    throw std::overflow_error(
        "the trees have " + std::to_string(sizes_.frontiers.back()) +
        " nodes together, which exceeds 32-bit ids; use fewer seeds or smaller fanouts");
  return sizes_;
}

template <typename P, typename N>
void TreeSampler<P, N>::each_tree(const std::function<void(Part&, int64_t, Worker&)>& f) {
  if (parts_.empty()) return;
  pool_->each(static_cast<int64_t>(parts_.size()), [&](int i, int worker) {
    Part& part = parts_[static_cast<size_t>(i)];
    for (int64_t tree = part.first; tree < part.end; ++tree)
      f(part, tree, workers_[static_cast<size_t>(worker)]);
  });
}

template <typename P, typename N>
void TreeSampler<P, N>::begin_tree(Part& part, int64_t tree) {
  Hop& seeds = part.hops[0];
  seeds.vertices.push_back(seeds_[tree]);
  seeds.ends.push_back(seeds.vertices.size());
  if (options_.bounds.of_edge) seeds.bounds.push_back(bounds_[tree]);
  found_[entry(0, graph_.lists.type_of(seeds_[tree]), tree)] = 1;
}

// Appends the places of the picks of a row.
template <typename P, typename N>
void TreeSampler<P, N>::pick(const TreeRow& row, Bound bound, int hop, std::vector<P>& places) const {
  const int64_t fanout = options_.fanout(row, hop);
  if (fanout == 0) return;
  const ListOf<P> list = graph_.lists.list(row, bound);
  const int64_t degree = list.end - list.begin;
  if (degree == 0) return;
  const Draws draws = draws_of(options_.keys.key, row, hop);
  const auto pick_by = [&](const auto& choice) {
    if (choice.whole(degree, fanout)) {
      for (P at = list.begin; at < list.end; ++at) places.push_back(at);
    } else if constexpr (std::decay_t<decltype(choice)>::kCountsByDegree) {
      uint32_t positions[kMaxFanout];
      pick_list(choice, graph_.lists, list.begin, static_cast<uint32_t>(degree), draws,
                static_cast<uint32_t>(fanout), positions);
      const int64_t count = choice.count(degree, fanout);
      for (int64_t i = 0; i < count; ++i) places.push_back(list.begin + static_cast<P>(positions[i]));
    } else {
      scan_list(choice, graph_.lists, list.begin, static_cast<uint32_t>(degree), options_.keys, hop, draws,
                fanout, places);
    }
  };
  std::visit(pick_by, options_.choice);
}

template <typename P, typename N>
void TreeSampler<P, N>::sample_hop(Part& part, int64_t tree, int hop, Worker& worker) {
  const Hop& from = part.hops[static_cast<size_t>(hop) - 1];
  Hop& found = part.hops[static_cast<size_t>(hop)];
  const int64_t local = tree - part.first;
  const size_t begin = begin_of(from, local), end = from.ends[static_cast<size_t>(local)];
  const size_t first_pick = found.places.size();
  const Lists& lists = graph_.lists;
  Bound bound = bounds_ ? bounds_[tree] : Bound{0, 0};
  int64_t number = 0;  // of a path's vertex in its hop
  int type_before = -1;
  for (size_t i = begin; i < end; ++i) {
    const N v = from.vertices[i];
    const int t = lists.type_of(v);
    const VertexType& type = lists.types[t];
    if (options_.bounds.of_edge) bound = from.bounds[i];
    if (options_.paths) {
      number = t == type_before ? number + 1 : found_[entry(hop - 1, t, tree)] - found_[entry(hop - 1, 0, 0)];
      type_before = t;
    }
    const size_t before = found.places.size();
    for (int32_t slot = 0; slot < type.relations; ++slot) {
      TreeRow row{type.row(v, static_cast<uint32_t>(slot)),
                  options_.paths ? static_cast<uint64_t>(number) : tree_lane(tree, v)};
      const size_t of_row = found.places.size();
      pick(row, bound, hop, found.places);
      found.counts.push_back(static_cast<uint32_t>(found.places.size() - of_row));
      if (options_.bounds.of_edge)
        for (size_t j = of_row; j < found.places.size(); ++j)
          found.bounds.push_back(lists.has_times(row.relation)
                                     ? options_.bounds.after(bound, lists.ranks[found.places[j]])
                                     : bound);
    }
    edges_[entry(hop - 1, t, tree)] += static_cast<int64_t>(found.places.size() - before);
  }
  uint32_t first_number = 0;
  for (int h = 0; h < hop; ++h) {
    const Hop& earlier = part.hops[static_cast<size_t>(h)];
    first_number +=
        static_cast<uint32_t>(earlier.ends[static_cast<size_t>(local)] - begin_of(earlier, local));
  }
  const size_t first_vertex = found.vertices.size();
  if (options_.paths)
    take_paths(found, first_pick, first_number, worker);
  else
    take_unique(found, first_pick, worker);
  found.ends.push_back(found.vertices.size());
  found.row_ends.push_back(found.counts.size());
  found.pick_ends.push_back(found.picks.size());
  for (size_t i = first_vertex; i < found.vertices.size(); ++i)
    ++found_[entry(hop, lists.type_of(found.vertices[i]), tree)];
}

// The picks from `first_pick` on are those of one tree: they get its numbers, and new vertices their places.
template <typename P, typename N>
void TreeSampler<P, N>::take_unique(Hop& found, size_t first_pick, Worker& worker) {
  const uint32_t known = worker.set.size();
  for (size_t j = first_pick; j < found.places.size(); ++j)
    found.picks.push_back(worker.set.number_of(graph_.lists.read(found.places[j])));
  worker.set.sort_from(known, worker.renumbered);
  for (size_t j = first_pick; j < found.picks.size(); ++j)
    if (found.picks[j] >= known) found.picks[j] = worker.renumbered[found.picks[j] - known];
  for (uint32_t i = known; i < worker.set.size(); ++i) found.vertices.push_back(worker.set[i]);
}

template <typename P, typename N>
void TreeSampler<P, N>::take_paths(Hop& found, size_t first_pick, uint32_t first_number, Worker& worker) {
  const size_t count = found.places.size() - first_pick, first_vertex = found.vertices.size();
  if (uint64_t{first_number} + count > UINT32_MAX)
    throw std::overflow_error("a tree has 2^32 nodes or more; use smaller fanouts");
  worker.types.resize(count);
  worker.of_type.assign(static_cast<size_t>(types()) + 1, 0);
  std::vector<N> vertices(count);
  for (size_t j = 0; j < count; ++j) {
    vertices[j] = graph_.lists.read(found.places[first_pick + j]);
    worker.types[j] = graph_.lists.type_of(vertices[j]);
    ++worker.of_type[static_cast<size_t>(worker.types[j]) + 1];
  }
  for (int t = 0; t < types(); ++t)
    worker.of_type[static_cast<size_t>(t) + 1] += worker.of_type[static_cast<size_t>(t)];
  found.vertices.resize(first_vertex + count);
  std::vector<Bound> bounds;
  if (options_.bounds.of_edge)
    bounds.assign(found.bounds.begin() + static_cast<int64_t>(first_vertex), found.bounds.end());
  for (size_t j = 0; j < count; ++j) {
    const uint32_t at = worker.of_type[static_cast<size_t>(worker.types[j])]++;
    found.vertices[first_vertex + at] = vertices[j];
    if (options_.bounds.of_edge) found.bounds[first_vertex + at] = bounds[j];
    found.picks.push_back(first_number + at);
  }
}

template <typename P, typename N>
void TreeSampler<P, N>::write(const TreesOut<P, N>& out) {
  for (int hop = 1; hop <= options_.hops; ++hop)
    out.blocks[static_cast<size_t>(hop) - 1].indptr[sizes_.rows[static_cast<size_t>(hop) - 1]] =
        static_cast<P>(sizes_.edges[static_cast<size_t>(hop) - 1]);
  each_tree([&](Part& part, int64_t tree, Worker& worker) { write_tree(part, tree, worker, out); });
}

template <typename P, typename N>
void TreeSampler<P, N>::write_tree(const Part& part, int64_t tree, Worker& worker,
                                   const TreesOut<P, N>& out) const {
  const int64_t local = tree - part.first;
  std::vector<int64_t>& place_of = worker.place_of;  // by number in the tree
  place_of.clear();
  for (int hop = 0; hop <= options_.hops; ++hop) {
    const Hop& of = part.hops[static_cast<size_t>(hop)];
    const N* v = of.vertices.data() + begin_of(of, local);
    for (int t = 0; t < types(); ++t)
      for (int64_t at = found_[entry(hop, t, tree)]; at < found_[entry(hop, t, tree) + 1]; ++at) {
        place_of.push_back(at);
        out.nodes[at] = *v++;
        out.trees[at] = static_cast<int32_t>(tree);
      }
  }
  for (int hop = 1; hop <= options_.hops; ++hop) {
    const Hop& of = part.hops[static_cast<size_t>(hop)];
    const BlockOut<P, N>& block = out.blocks[static_cast<size_t>(hop) - 1];
    // Of the trees before, in the arrays of the part.
    const size_t before = static_cast<size_t>(local) - 1;
    size_t row = local > 0 ? of.row_ends[before] : 0, pick = local > 0 ? of.pick_ends[before] : 0;
    int64_t first_row = 0;  // of the type
    for (int t = 0; t < types(); ++t) {
      const int64_t relations = graph_.lists.types[t].relations, first = found_[entry(hop - 1, t, 0)];
      int64_t edge = edges_[entry(hop - 1, t, tree)] - edges_[entry(hop - 1, 0, 0)];
      for (int64_t at = found_[entry(hop - 1, t, tree)]; at < found_[entry(hop - 1, t, tree) + 1]; ++at)
        for (int64_t slot = 0; slot < relations; ++slot) {
          block.indptr[first_row + (at - first) * relations + slot] = static_cast<P>(edge);
          for (uint32_t i = of.counts[row++]; i > 0; --i, ++edge, ++pick) {
            block.indices[edge] = static_cast<N>(place_of[of.picks[pick]]);
            if (block.edge_ids) block.edge_ids[edge] = of.places[pick];
          }
        }
      first_row += (found_[entry(hop - 1, t + 1, 0)] - first) * relations;
    }
  }
}

extern template class TreeSampler<int32_t, int32_t>;
extern template class TreeSampler<int64_t, int32_t>;
extern template class TreeSampler<int64_t, int64_t>;

}  // namespace loader
