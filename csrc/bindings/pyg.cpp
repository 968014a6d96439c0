// Exports the sampler of subgraphs in the form of torch_geometric, on the arrays that it has.
#include <pybind11/stl.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/choice.h"
#include "bindings/sampled_buffer.h"
#include "bindings/unlocked.h"
#include "bindings/views.h"
#include "sampler/cpu/subgraph.h"

namespace loader {
namespace {

constexpr int kIdleSubgraphs = 4;  // idle ones
constexpr size_t kMostHops = 32;

class AnySubgraphSampler {
 public:
  // Numbers of vertices by hop, of edges by hop; where nodes, sources, targets and, if wanted, edge ids begin
  // in the buffer, in bytes.
  using Sampled = std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>,
                             std::shared_ptr<SampledBuffer>>;

  AnySubgraphSampler(py::object indptr, py::object indices, int64_t num_threads, py::object picks)
      : indptr_(std::move(indptr)),
        indices_(std::move(indices)),
        picks_(std::move(picks)),
        pool_(std::make_shared<BufferPool>(kIdleSubgraphs)) {
    check_num_threads(num_threads);
    if (!picks_.is_none() && !py::isinstance<WeightTables>(picks_) && !py::isinstance<WeightOrder>(picks_))
      throw py::type_error("picks is a " + std::string(py::str(py::type::of(picks_).attr("__name__"))) +
                           "; it must be WeightTables, WeightOrder or None");  // the degree says how many
    if (dtype_of(indptr_) == "torch.int32")
      make<int32_t>(static_cast<int>(num_threads));
    else
      make<int64_t>(static_cast<int>(num_threads));
  }
  ~AnySubgraphSampler() { pool_->clear(); }
  AnySubgraphSampler(const AnySubgraphSampler&) = delete;
  AnySubgraphSampler& operator=(const AnySubgraphSampler&) = delete;

  Sampled sample(const py::object& seeds, const std::vector<int64_t>& fanouts, uint64_t key, bool replace,
                 bool edge_ids, bool induced) {
    return std::visit(
        [&](auto& sampler) { return sample_as(*sampler, seeds, fanouts, key, replace, edge_ids, induced); },
        impl_);
  }

 private:
  template <typename T>
  void make(int num_threads) {
    const auto offsets = offsets_view<T>(indptr_, "rowptr");
    const auto sources = view<const T>(indices_, "col");
    check_offsets(offsets, sources.size, "rowptr", "col");
    const Unlocked unlocked;
    impl_ = std::make_unique<SubgraphSampler<T>>(
        GraphOf<PlainLists<T, T>>{{offsets.data, sources.data}, offsets.size - 1}, num_threads);
  }

  template <typename T>
  SampleOptions options_for(const SubgraphSampler<T>& sampler, const std::vector<int64_t>& fanouts,
                            uint64_t key, bool replace, bool edge_ids) const {
    if (fanouts.size() > kMostHops)
      throw py::value_error("num_neighbors has " + std::to_string(fanouts.size()) + " entries; up to " +
                            std::to_string(kMostHops) + " are possible");
    SampleOptions options{fanouts, make_choice(picks_, replace, sampler.num_edges()), edge_ids, {key, 0, 0}};
    for (int64_t& k : options.fanouts) {
      if (k < 0 || (!replace && k >= sampler.max_degree())) k = kAllNeighbors;  // the same picks
      if (k > kMaxFanout)
        throw py::value_error("num_neighbors holds " + std::to_string(k) + "; picks are possible up to " +
                              std::to_string(kMaxFanout) + ", and -1 takes all neighbors");
    }
    return options;
  }

  template <typename T>
  Sampled sample_as(SubgraphSampler<T>& sampler, const py::object& seeds, const std::vector<int64_t>& fanouts,
                    uint64_t key, bool replace, bool edge_ids, bool induced) {
    const SampleOptions options = options_for(sampler, fanouts, key, replace, edge_ids);
    const auto starts = view<const T>(seeds, "seed");
    SubgraphSizes counted;
    std::vector<int64_t> offsets;
    std::shared_ptr<SampledBuffer> buffer;
    const auto place = [&](const SubgraphSizes& sizes) {
      counted = sizes;
      const int64_t nodes = std::accumulate(sizes.nodes.begin(), sizes.nodes.end(), int64_t{0});
      const int64_t edges = std::accumulate(sizes.edges.begin(), sizes.edges.end(), int64_t{0});
      int64_t end = 0;
      // Sources and targets lie one behind the other: together they are an array [2, edges].
      for (const int64_t count : {nodes, 2 * edges, edge_ids ? edges : -1}) {
        if (count < 0) continue;
        offsets.push_back(end);
        end += (count * static_cast<int64_t>(sizeof(T)) + kLine - 1) / kLine * kLine;
      }
      offsets.insert(offsets.begin() + 2, offsets[1] + edges * static_cast<int64_t>(sizeof(T)));
      buffer = std::make_shared<SampledBuffer>(pool_, std::max(end, kLine));
      const auto array = [&](int i) { return reinterpret_cast<T*>(buffer->data() + offsets[i]); };
      return SubgraphOut<T>{array(0), array(1), array(2), edge_ids ? array(3) : nullptr};
    };
    {
      const Unlocked unlocked;
      if (induced)
        sampler.sample_induced(starts.data, starts.size, options, place);
      else
        sampler.sample(starts.data, starts.size, options, place);
    }
    return {counted.nodes, counted.edges, offsets, std::move(buffer)};
  }

  const py::object indptr_, indices_, picks_;  // the core holds addresses of theirs
  std::shared_ptr<BufferPool> pool_;
  std::variant<std::unique_ptr<SubgraphSampler<int32_t>>, std::unique_ptr<SubgraphSampler<int64_t>>> impl_;
};

}  // namespace

void bind_pyg(py::module_& m) {
  py::class_<AnySubgraphSampler>(m, "SubgraphSampler")
      .def(py::init<py::object, py::object, int64_t, py::object>(), py::arg("indptr"), py::arg("indices"),
           py::arg("num_threads"), py::arg("picks") = py::none())
      .def("sample", &AnySubgraphSampler::sample, py::arg("seeds"), py::arg("fanouts"), py::arg("key"),
           py::arg("replace"), py::arg("edge_ids"), py::arg("induced"));
}

}  // namespace loader
