// The sampler as its specification: hop by hop, a barrier between hops. The oracle of all other samplers.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parallel.h"
#include "sampler/cpu/pick_list.h"
#include "sampler/sampler.h"

namespace loader {

// `Choice`: AnyChoice, or one choice.
template <typename ListsOf, typename Choice = AnyChoice>
class HopwiseSamplerOf {
 public:
  using Lists = ListsOf;
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  using Options = SampleOptionsOf<Choice>;

  explicit HopwiseSamplerOf(int num_threads) : HopwiseSamplerOf(std::make_shared<ThreadPool>(num_threads)) {}
  explicit HopwiseSamplerOf(std::shared_ptr<Workers> pool) : pool_(std::move(pool)) {}

  // Samples and keeps the result; returns the sizes of the arrays that `write` fills.
  SampleSizes sample(const GraphOf<Lists>& graph, const N* seeds, int64_t num_seeds, const Options& options);
  void write(const SampleOut<P, N>& out);

 private:
  static_assert(is_lists<Lists>, "see graph/lists.h");
  struct Hop {
    std::vector<P> indptr, edges;  // edges: places in the lists
    std::vector<N> indices;        // global ids, then local ids
  };

  using Row = typename Lists::Row;
  static_assert(std::is_same_v<Row, HeteroRow> || std::is_same_v<Row, VertexRow>,
                "a row of a hop is a node, or see graph/hetero.h");

  // Appends the picks of a list.
  static void pick(const Lists& lists, const Row& row, int hop, const Options& options,
                   std::vector<P>& picked);

  const std::shared_ptr<Workers> pool_;
  std::vector<N> frontier_;
  std::vector<Hop> hops_;
};

template <typename Lists, typename Choice>
void HopwiseSamplerOf<Lists, Choice>::pick(const Lists& lists, const Row& row, int hop,
                                           const Options& options, std::vector<P>& picked) {
  const ListOf<P> list = lists.list(row);
  const int64_t fanout = options.fanout(row, hop), degree = list.end - list.begin;
  if (fanout == 0) return;
  const Draws draws = draws_of(options.keys.key, row, hop);
  with_choice(options.choice, [&](const auto& choice) {
    if (choice.whole(degree, fanout)) {
      for (P at = list.begin; at < list.end; ++at) picked.push_back(at);
    } else if (degree > 0) {
      if constexpr (std::decay_t<decltype(choice)>::kCountsByDegree) {
        uint32_t positions[kMaxFanout];
        pick_list(choice, lists, list.begin, static_cast<uint32_t>(degree), draws,
                  static_cast<uint32_t>(fanout), positions);
        const int64_t count = choice.count(degree, fanout);
        for (int64_t i = 0; i < count; ++i) picked.push_back(list.begin + static_cast<P>(positions[i]));
      } else {
        scan_list(choice, lists, list.begin, static_cast<uint32_t>(degree), options.keys, hop, draws, fanout,
                  picked);
      }
    }
  });
}

template <typename Lists, typename Choice>
SampleSizes HopwiseSamplerOf<Lists, Choice>::sample(const GraphOf<Lists>& graph, const N* seeds,
                                                    int64_t num_seeds, const Options& options) {
  std::unordered_map<N, N> local;  // global id -> local id
  for (int64_t i = 0; i < num_seeds; ++i) {
    check_seed(seeds[i], graph.num_nodes);
    if (!local.emplace(seeds[i], static_cast<N>(i)).second) throw_duplicate_seed(seeds[i]);
  }
  frontier_.assign(seeds, seeds + num_seeds);
  hops_.assign(options.hops(), {});
  SampleSizes sizes{{num_seeds}, {}};

  std::vector<Row> all;
  size_t listed = 0;  // vertices whose rows are in `all`
  for (int h = 1; h <= options.hops(); ++h) {
    Hop& hop = hops_[h - 1];
    if (options.once) all.clear();
    for (; listed < frontier_.size(); ++listed)
      for_each_row(graph.lists, frontier_[listed], [&](const Row& row) { all.push_back(row); });
    const auto rows = static_cast<int64_t>(all.size());

    with_choice(options.choice, [&](const auto& choice) {
      if constexpr (std::decay_t<decltype(choice)>::kCountsByDegree) {  // before memory is taken
        int64_t expected = 0;
        for (int64_t row = 0; row < rows; ++row) {
          const ListOf<P> list = graph.lists.list(all[row]);
          expected += choice.count(int64_t{list.end} - list.begin, options.fanout(all[row], h));
        }
        check_edge_count<P>(expected);
      }
    });

    // Each share of rows has picks of its own, which follow each other.
    std::vector<std::vector<P>> shares(pool_->size());
    std::vector<int64_t> counts(rows);
    pool_->each(pool_->size(), [&](int share, int) {
      std::vector<P>& picked = shares[share];
      for (int64_t row = rows * share / pool_->size(); row < rows * (share + 1) / pool_->size(); ++row) {
        const size_t before = picked.size();
        pick(graph.lists, all[row], h, options, picked);
        counts[row] = static_cast<int64_t>(picked.size() - before);
      }
    });
    const int64_t edges = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    check_edge_count<P>(edges);
    hop.indptr.assign(rows + 1, 0);
    for (int64_t row = 0; row < rows; ++row)
      hop.indptr[row + 1] = static_cast<P>(hop.indptr[row] + counts[row]);
    for (const std::vector<P>& picked : shares)
      hop.edges.insert(hop.edges.end(), picked.begin(), picked.end());
    for (const P at : hop.edges) hop.indices.push_back(graph.lists.read(at));

    // The new vertices follow in ascending order of their global id.
    std::vector<N> fresh(hop.indices);
    std::sort(fresh.begin(), fresh.end());
    fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
    for (const N u : fresh)
      if (local.emplace(u, static_cast<N>(frontier_.size())).second) frontier_.push_back(u);
    for (N& u : hop.indices) u = local.at(u);
    sizes.frontiers.push_back(static_cast<int64_t>(frontier_.size()));
    sizes.edges.push_back(edges);
    sizes.rows.push_back(rows);
  }
  return sizes;
}

template <typename Lists, typename Choice>
void HopwiseSamplerOf<Lists, Choice>::write(const SampleOut<P, N>& out) {
  std::copy(frontier_.begin(), frontier_.end(), out.nodes);
  for (size_t h = 0; h < hops_.size(); ++h) {
    std::copy(hops_[h].indptr.begin(), hops_[h].indptr.end(), out.blocks[h].indptr);
    std::copy(hops_[h].indices.begin(), hops_[h].indices.end(), out.blocks[h].indices);
    if (out.blocks[h].edge_ids)
      std::copy(hops_[h].edges.begin(), hops_[h].edges.end(), out.blocks[h].edge_ids);
  }
}

// Of plain lists: compiled once, in hopwise.cpp.
template <typename P, typename N>
using HopwiseSampler = HopwiseSamplerOf<PlainLists<P, N>>;
extern template class HopwiseSamplerOf<PlainLists<int32_t, int32_t>>;
extern template class HopwiseSamplerOf<PlainLists<int64_t, int32_t>>;
extern template class HopwiseSamplerOf<PlainLists<int64_t, int64_t>>;

// Of HeteroLists: hopwise_hetero.cpp.
template <typename P, typename N>
using HeteroHopwiseSampler = HopwiseSamplerOf<HeteroLists<P, N>>;
extern template class HopwiseSamplerOf<HeteroLists<int32_t, int32_t>>;
extern template class HopwiseSamplerOf<HeteroLists<int64_t, int32_t>>;
extern template class HopwiseSamplerOf<HeteroLists<int64_t, int64_t>>;

}  // namespace loader
