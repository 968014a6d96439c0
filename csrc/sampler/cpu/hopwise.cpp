#include "sampler/cpu/hopwise.h"

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>
#include <variant>

namespace loader {

namespace {

// The picks of one list [begin, begin + degree) that is not taken whole, as places in the graph's indices.
struct Positions {
  const BatchKeys& keys;
  int64_t v;
  int hop;
  int64_t fanout;

  Draws draws() const { return {keys.key, static_cast<uint64_t>(v), static_cast<uint32_t>(hop)}; }

  template <typename P, typename N>
  void operator()(const UniformChoice& choice, const N*, P begin, uint32_t degree,
                  std::vector<P>& picked) const {
    uint32_t positions[kMaxFanout];
    pick_positions(draws(), degree, static_cast<uint32_t>(fanout), choice.replace, positions);
    add(positions, begin, picked);
  }
  template <typename P, typename N>
  void operator()(const WeightedChoice& choice, const N*, P begin, uint32_t degree,
                  std::vector<P>& picked) const {
    uint32_t positions[kMaxFanout];
    pick_weighted(draws(), choice.list(begin, degree), static_cast<uint32_t>(fanout), choice.replace,
                  positions);
    add(positions, begin, picked);
  }
  template <typename P, typename N>
  void operator()(const TopKChoice& choice, const N*, P begin, uint32_t, std::vector<P>& picked) const {
    uint32_t positions[kMaxFanout];
    pick_heaviest(choice.order + begin, static_cast<uint32_t>(fanout), positions);
    add(positions, begin, picked);
  }
  template <typename P, typename N>
  void operator()(const LaborChoice& choice, const N* indices, P begin, uint32_t degree,
                  std::vector<P>& picked) const {
    const SourceNumbers numbers = choice.numbers(keys, hop);
    for (uint32_t i = 0; i < degree; ++i)
      if (labor_picks(numbers(static_cast<uint64_t>(indices[begin + i])), degree,
                      static_cast<uint32_t>(fanout)))
        picked.push_back(begin + static_cast<P>(i));
  }

  template <typename P, typename N>
  void operator()(const RaceChoice& choice, const N*, P begin, uint32_t degree,
                  std::vector<P>& picked) const {
    std::vector<std::pair<double, P>> race;
    for (uint32_t i = 0; i < degree; ++i) {
      const P at = begin + static_cast<P>(i);
      const double weight = choice.weight(at);
      if (!(weight >= 0 && weight <= kLast)) throw_bad_weight(at, weight);
      if (weight > 0) race.emplace_back(arrival(draws().pair(i), weight), at);
    }
    std::sort(race.begin(), race.end());
    if (fanout != kAllNeighbours && fanout < static_cast<int64_t>(race.size())) race.resize(fanout);
    const size_t before = picked.size();
    for (const auto& [time, at] : race) picked.push_back(at);
    std::sort(picked.begin() + static_cast<int64_t>(before), picked.end());
  }

 private:
  template <typename P>
  void add(const uint32_t* positions, P begin, std::vector<P>& picked) const {
    for (int64_t i = 0; i < fanout; ++i) picked.push_back(begin + static_cast<P>(positions[i]));
  }
};

}  // namespace

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

    const auto degree_of = [&](int64_t row) {
      return int64_t{graph.indptr[frontier_[row] + 1]} - graph.indptr[frontier_[row]];
    };
    std::visit(
        [&](const auto& choice) {
          if constexpr (std::decay_t<decltype(choice)>::kCountsByDegree) {  // before memory is taken
            int64_t expected = 0;
            for (int64_t row = 0; row < rows; ++row) expected += choice.count(degree_of(row), fanout);
            check_edge_count<P>(expected);
          }
        },
        options.choice);

    // Each share of rows has picks of its own, which follow each other.
    std::vector<std::vector<P>> shares(pool_->size());
    std::vector<int64_t> counts(rows);
    pool_->each(pool_->size(), [&](int share, int) {
      std::vector<P>& picked = shares[share];
      for (int64_t row = rows * share / pool_->size(); row < rows * (share + 1) / pool_->size(); ++row) {
        const N v = frontier_[row];
        const P begin = graph.indptr[v], end = graph.indptr[v + 1];
        const size_t before = picked.size();
        std::visit(
            [&](const auto& choice) {
              if (choice.whole(end - begin, fanout))
                for (P at = begin; at < end; ++at) picked.push_back(at);
              else if (begin < end)
                Positions{options.keys, v, h, fanout}(choice, graph.indices, begin,
                                                      static_cast<uint32_t>(end - begin), picked);
            },
            options.choice);
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
    for (const P at : hop.edges) hop.indices.push_back(graph.indices[at]);

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
