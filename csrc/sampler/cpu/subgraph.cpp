#include "sampler/cpu/subgraph.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <utility>

namespace loader {
namespace {

// The first place of each vertex of a list: a table with open addresses.
template <typename T>
class Places {
 public:
  explicit Places(int64_t most) {
    int bits = 4;
    while ((int64_t{1} << bits) < 2 * most) ++bits;
    shift_ = 64 - bits;
    mask_ = (uint64_t{1} << bits) - 1;
    slots_.assign(size_t{1} << bits, {T{-1}, 0});
  }

  // Puts `v` at `place` if it has none; returns the place that it has.
  int64_t put(T v, int64_t place) {
    Slot& slot = slots_[find(v)];
    if (slot.vertex < 0) slot = {v, place};
    return slot.place;
  }

  // The place of `v`, or -1.
  int64_t of(T v) const {
    const Slot& slot = slots_[find(v)];
    return slot.vertex < 0 ? -1 : slot.place;
  }

 private:
  struct Slot {
    T vertex;
    int64_t place;
  };

  // The slot of `v`, or the free one where it belongs.
  size_t find(T v) const {
    uint64_t at = static_cast<uint64_t>(v) * 0x9E3779B97F4A7C15u >> shift_;  // Fibonacci hashing (Knuth)
    while (slots_[at].vertex >= 0 && slots_[at].vertex != v) at = (at + 1) & mask_;
    return at;
  }

  int shift_;
  uint64_t mask_;
  std::vector<Slot> slots_;
};

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

// What was sampled, in memory of its own.
template <typename T>
struct SubgraphSampler<T>::Sampled {
  SubgraphSizes sizes;
  std::vector<T> nodes, sources, targets, edge_ids;
};

template <typename T>
SubgraphSampler<T>::SubgraphSampler(const GraphOf<PlainLists<T, T>>& graph, int num_threads)
    : graph_(graph), group_(graph, {}, num_threads, [](const std::shared_ptr<Workers>& pool) {
        return std::make_unique<FusedSampler<T, T>>(pool);
      }) {
  for (int64_t v = 0; v < graph.num_nodes; ++v) {
    const ListOf<T> list = graph.lists.list({v});
    max_degree_ = std::max(max_degree_, int64_t{list.end} - list.begin);
    num_edges_ = list.end;
  }
}

template <typename T>
void SubgraphSampler<T>::sample(const T* seeds, int64_t num_seeds, const SampleOptions& options,
                                const Place& place) {
  for (int64_t i = 0; i < num_seeds; ++i) check_seed(seeds[i], graph_.num_nodes);
  if (options.hops() == 0) {
    std::copy_n(seeds, num_seeds, place({{num_seeds}, {}}).nodes);
    return;
  }
  SampleOptions once = options;
  once.once = true;
  once.copies = true;
  const auto errors =
      group_.sample(once, {{seeds, num_seeds, options.keys}}, [&](size_t, const SampleSizes& sampled) {
        SubgraphSizes sizes{sampled.frontiers, sampled.edges};
        std::adjacent_difference(sizes.nodes.begin(), sizes.nodes.end(), sizes.nodes.begin());
        const SubgraphOut<T> out = place(sizes);
        SampleOut<T, T> arrays{out.nodes, {}};
        int64_t at = 0;
        for (const int64_t edges : sizes.edges) {
          T* const ids = out.edge_ids ? out.edge_ids + at : nullptr;
          arrays.blocks.push_back({nullptr, out.sources + at, ids, out.targets + at});
          at += edges;
        }
        return arrays;
      });
  if (errors[0]) std::rethrow_exception(errors[0]);
}

template <typename T>
void SubgraphSampler<T>::sample_induced(const T* seeds, int64_t num_seeds, const SampleOptions& options,
                                        const Place& place) {
  Sampled sampled;
  SampleOptions without = options;
  without.edge_ids = false;
  sample(seeds, num_seeds, without, [&](const SubgraphSizes& sizes) {
    sampled.sizes = sizes;
    sampled.nodes.resize(sum(sizes.nodes));
    sampled.sources.resize(sum(sizes.edges));
    sampled.targets.resize(sampled.sources.size());
    return SubgraphOut<T>{sampled.nodes.data(), sampled.sources.data(), sampled.targets.data(), nullptr};
  });
  const auto num_nodes = static_cast<int64_t>(sampled.nodes.size());
  Places<T> places(num_nodes);
  for (int64_t i = 0; i < num_nodes; ++i) places.put(sampled.nodes[i], i);
  sampled.sources.clear();
  sampled.targets.clear();
  for (int64_t i = 0; i < num_nodes; ++i) {
    const ListOf<T> list = graph_.lists.list({sampled.nodes[i]});
    for (T at = list.begin; at < list.end; ++at) {
      const int64_t source = places.of(graph_.lists.read(at));
      if (source < 0) continue;
      sampled.sources.push_back(static_cast<T>(source));
      sampled.targets.push_back(static_cast<T>(i));
      sampled.edge_ids.push_back(at);
    }
  }
  sampled.sizes.edges = {static_cast<int64_t>(sampled.sources.size())};
  const SubgraphOut<T> out = place(sampled.sizes);
  std::copy(sampled.nodes.begin(), sampled.nodes.end(), out.nodes);
  std::copy(sampled.sources.begin(), sampled.sources.end(), out.sources);
  std::copy(sampled.targets.begin(), sampled.targets.end(), out.targets);
  if (out.edge_ids) std::copy(sampled.edge_ids.begin(), sampled.edge_ids.end(), out.edge_ids);
}

template class SubgraphSampler<int32_t>;
template class SubgraphSampler<int64_t>;

}  // namespace loader
