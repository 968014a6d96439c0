// The sampler as its specification: hop by hop, a barrier between hops. The oracle of all other samplers.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parallel.h"
#include "sampler/sampler.h"

namespace loader {

template <typename P, typename N>
class HopwiseSampler {
 public:
  explicit HopwiseSampler(int num_threads) : HopwiseSampler(std::make_shared<ThreadPool>(num_threads)) {}
  explicit HopwiseSampler(std::shared_ptr<Workers> pool) : pool_(std::move(pool)) {}

  // Samples and keeps the result; returns the sizes of the arrays that `write` fills.
  SampleSizes sample(const Csc<P, N>& graph, const N* seeds, int64_t num_seeds, const SampleOptions& options);
  void write(const SampleOut<P, N>& out);

 private:
  struct Hop {
    std::vector<P> indptr, edges;  // edges: positions in the graph's indices
    std::vector<N> indices;        // global ids, then local ids
  };

  const std::shared_ptr<Workers> pool_;
  std::vector<N> frontier_;
  std::vector<Hop> hops_;
};

}  // namespace loader
