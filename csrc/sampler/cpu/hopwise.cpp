#include "sampler/cpu/hopwise.h"

#include <algorithm>
#include <numeric>

namespace loader {

template <typename P, typename N>
SampleSizes HopwiseSampler<P, N>::sample(const Csc<P, N>& graph, const N* seeds, int64_t num_seeds,
                                         const SampleOptions& options) {
  std::unordered_map<N, N> local;  // global id -> local id
  for (int64_t i = 0; i < num_seeds; ++i) {
    check_seed(seeds[i], graph.num_nodes);
    if (!local.emplace(seeds[i], static_cast<N>(i)).second) throw_duplicate_seed(seeds[i]);
  }
  frontier_.assign(seeds, seeds + num_seeds);
  hops_.assign(options.hops(), {});
  SampleSizes sizes{{num_seeds}, {}};

  for (int h = 1; h <= options.hops(); ++h) {
    Hop& hop = hops_[h - 1];
    const int64_t fanout = options.fanouts[h - 1];
    const auto rows = static_cast<int64_t>(frontier_.size());
    const auto degree = [&](int64_t row) {
      return int64_t{graph.indptr[frontier_[row] + 1]} - graph.indptr[frontier_[row]];
    };

    int64_t edges = 0;
    for (int64_t row = 0; row < rows; ++row) edges += pick_count(degree(row), fanout, options.replace);
    check_edge_count<P>(edges);
    hop.indptr.assign(rows + 1, 0);
    for (int64_t row = 0; row < rows; ++row)
      hop.indptr[row + 1] =
          static_cast<P>(hop.indptr[row] + pick_count(degree(row), fanout, options.replace));
    hop.edges.resize(edges);
    hop.indices.resize(edges);

    pool_->split(rows, [&](int64_t begin, int64_t end) {
      uint32_t positions[kMaxFanout];
      for (int64_t row = begin; row < end; ++row) {
        const N v = frontier_[row];
        P* const picked = hop.edges.data() + hop.indptr[row];
        const int64_t count = hop.indptr[row + 1] - hop.indptr[row];
        if (picks_all(degree(row), fanout, options.replace)) {
          std::iota(picked, picked + count, graph.indptr[v]);
        } else if (count > 0) {
          const Draws draws{options.key, static_cast<uint64_t>(v), static_cast<uint32_t>(h)};
          pick_positions(draws, static_cast<uint32_t>(degree(row)), static_cast<uint32_t>(fanout),
                         options.replace, positions);
          for (int64_t i = 0; i < count; ++i) picked[i] = static_cast<P>(graph.indptr[v] + positions[i]);
        }
        for (int64_t i = 0; i < count; ++i) hop.indices[hop.indptr[row] + i] = graph.indices[picked[i]];
      }
    });

    // The new vertices follow in ascending order of their global id.
    std::vector<N> fresh(hop.indices);
    std::sort(fresh.begin(), fresh.end());
    fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
    for (const N u : fresh)
      if (local.emplace(u, static_cast<N>(frontier_.size())).second) frontier_.push_back(u);
    for (N& u : hop.indices) u = local.at(u);
    sizes.frontiers.push_back(static_cast<int64_t>(frontier_.size()));
    sizes.edges.push_back(edges);
  }
  return sizes;
}

template <typename P, typename N>
void HopwiseSampler<P, N>::write(const SampleOut<P, N>& out) {
  std::copy(frontier_.begin(), frontier_.end(), out.nodes);
  for (size_t h = 0; h < hops_.size(); ++h) {
    std::copy(hops_[h].indptr.begin(), hops_[h].indptr.end(), out.blocks[h].indptr);
    std::copy(hops_[h].indices.begin(), hops_[h].indices.end(), out.blocks[h].indices);
    if (out.blocks[h].edge_ids)
      std::copy(hops_[h].edges.begin(), hops_[h].edges.end(), out.blocks[h].edge_ids);
  }
}

template class HopwiseSampler<int32_t, int32_t>;
template class HopwiseSampler<int64_t, int32_t>;
template class HopwiseSampler<int64_t, int64_t>;

}  // namespace loader
