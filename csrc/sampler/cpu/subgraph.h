// Samples in the form of torch_geometric: one subgraph, in which a vertex' neighbors are picked once, at the
// hop after the one that met it. What is picked for a vertex at a hop is what every sampler picks there.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sampler/cpu/fused.h"
#include "sampler/cpu/group.h"
#include "sampler/sampler.h"

namespace loader {

struct SubgraphSizes {
  std::vector<int64_t> nodes;  // [hops + 1]: the seeds, then what is new at each hop
  std::vector<int64_t> edges;  // [hops], or the number of all edges where they are not counted by hop
};

// Outputs of the sizes that SubgraphSizes announced.
template <typename T>
struct SubgraphOut {
  T* nodes;     // [sum of nodes]: the seeds as they were given, then hop by hop, ascending within a hop
  T* sources;   // [sum of edges], local ids
  T* targets;   // [sum of edges], local ids
  T* edge_ids;  // [sum of edges], places in the lists, or null
};

// Of a graph whose arrays all have one type.
template <typename T>
class SubgraphSampler {
 public:
  // Where the arrays go.
  using Place = std::function<SubgraphOut<T>(const SubgraphSizes& sizes)>;

  SubgraphSampler(const GraphOf<PlainLists<T, T>>& graph, int num_threads);

  // Any number of hops, fanouts of 0 and more seeds of one vertex are allowed. Each such seed picks by
  // itself, by the lane that lane_of_copy gives; edges that lead from the vertex begin at its first seed. Any
  // number of threads.
  void sample(const T* seeds, int64_t num_seeds, const SampleOptions& options, const Place& place);

  // The vertices of `sample`, with all edges among them: those of each vertex in the order of its list.
  void sample_induced(const T* seeds, int64_t num_seeds, const SampleOptions& options, const Place& place);

  int64_t max_degree() const { return max_degree_; }
  int64_t num_edges() const { return num_edges_; }

 private:
  struct Sampled;

  const GraphOf<PlainLists<T, T>> graph_;
  int64_t max_degree_ = 0, num_edges_ = 0;
  GroupSampler<FusedSampler<T, T>> group_;
};

}  // namespace loader
