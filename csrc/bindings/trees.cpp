// Exports the CPU's sampler of trees.
#include "bindings/trees.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/sampled_buffer.h"
#include "bindings/unlocked.h"
#include "disk/faults.h"
#include "features/buffer_pool.h"
#include "fork.h"
#include "sampler/cpu/trees.h"

namespace loader {
namespace {

constexpr int kIdleTreeBuffers = 8;

TreeChoice as_tree_choice(const AnyChoice& choice, bool last) {
  return std::visit(
      [last](const auto& kind) -> TreeChoice {
        using Kind = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<Kind, WeightedChoice> || std::is_same_v<Kind, TopKChoice>) {
          throw py::value_error(
              "a row of a tree sees a part of its list, which has no table of weights: use Race");
        } else {
          if (!last) return kind;
          if constexpr (std::is_same_v<Kind, UniformChoice>)
            if (!kind.replace) return LastChoice{};
          throw py::value_error("the last entries are picked once and without weights");
        }
      },
      choice);
}

class AnyTreeSampler {
 public:
  AnyTreeSampler(py::object indptr, py::object indices, const std::vector<std::vector<int64_t>>& fanouts,
                 const std::vector<Types::Entry>& types, py::object times, bool paths, bool last,
                 bool replace, bool edge_ids, int64_t num_threads, py::object picks)
      : indptr_(std::move(indptr)),
        indices_(std::move(indices)),
        times_(std::move(times)),
        picks_(std::move(picks)) {
    const Types checked(types, fanouts, true);
    if (fanouts.empty() || fanouts.size() > kMaxHops)
      throw py::value_error("fanouts has " + std::to_string(fanouts.size()) + " hops; 1 to " +
                            std::to_string(kMaxHops) + " are possible");
    options_.hops = static_cast<int>(fanouts.size());
    options_.num_relations = checked.num_relations();
    for (const auto& hop : fanouts) options_.fanouts.insert(options_.fanouts.end(), hop.begin(), hop.end());
    const auto num_edges = indices_.attr("numel")().cast<int64_t>();
    options_.choice = as_tree_choice(make_choice(picks_, replace, num_edges), last);
    options_.paths = paths;
    options_.edge_ids = edge_ids;
    if (!times_.is_none()) {
      options_.bounds = times_.cast<const Times&>().rule("cpu");
      of_seeds_ = times_.cast<const Times&>().of_seeds("cpu");
    }
    if (options_.bounds.of_edge && !paths)
      throw py::value_error("the bounds of edges need paths: two edges may lead to a node of a tree");
    check_num_threads(num_threads);
    pool_ = std::make_shared<BufferPool>(kIdleTreeBuffers);
    const auto workers = std::make_shared<ThreadPool>(static_cast<int>(num_threads));
    const bool wide_edges = dtype_of(indptr_) == "torch.int64",
               wide_nodes = dtype_of(indices_) == "torch.int64";
    if (wide_nodes)
      make<int64_t, int64_t>(checked, workers);
    else if (wide_edges)
      make<int64_t, int32_t>(checked, workers);
    else
      make<int32_t, int32_t>(checked, workers);
  }
  ~AnyTreeSampler() { pool_->clear(); }
  AnyTreeSampler(const AnyTreeSampler&) = delete;
  AnyTreeSampler& operator=(const AnyTreeSampler&) = delete;

  using Sampled = std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>,
                             std::vector<int64_t>, std::vector<int64_t>, std::shared_ptr<SampledBuffer>>;

  // (vertices within each number of hops, edges and lists of each hop, [hops + 1][types] new vertices, where
  // arrays begin, their memory): vertices, trees, then each hop's indptr, indices and edge ids.
  Sampled sample(const py::object& seeds, const py::object& times, uint64_t key, uint64_t next_key,
                 uint32_t phase) {
    return std::visit([&](auto& made) { return sample_as(*made, seeds, times, {key, next_key, phase}); },
                      made_);
  }

 private:
  template <typename P, typename N>
  struct Made {
    GraphOf<TimedLists<P, N>> graph;
    std::shared_ptr<Workers> workers;
    std::unique_ptr<TreeSampler<P, N>> sampler;
  };

  template <typename P, typename N>
  void make(const Types& types, const std::shared_ptr<Workers>& workers) {
    const auto offsets = offsets_view<P>(indptr_);
    const auto sources = view<const N>(indices_, "indices");
    check_offsets(offsets, sources.size);
    made_ =
        std::unique_ptr<Made<P, N>>(new Made<P, N>{timed_graph(types, offsets, sources, times_, "cpu"),
                                                   workers, std::make_unique<TreeSampler<P, N>>(workers)});
    read_ = read_bytes(offsets, sources, options_.choice);
  }

  template <typename P, typename N>
  Sampled sample_as(Made<P, N>& made, const py::object& seeds, const py::object& times, BatchKeys keys) {
    const auto starts = view<const N>(seeds, "seeds");
    const int64_t* at = nullptr;
    if (of_seeds_.are_there)
      at = view<const int64_t>(times, "times", starts.size).data;
    else if (!times.is_none())
      throw py::value_error("times are given; nothing in the graph has a time");
    const Unlocked unlocked;
    const std::lock_guard<LongMutex> turn(turn_);
    const Busy busy(busy_);
    read_.require_whole();  // lists whose bounds are zeros must not be read
    options_.keys = keys;
    std::vector<Bound> bounds;
    for (int64_t i = 0; at && i < starts.size; ++i) bounds.push_back(bound_at(at[i]));
    const TreeSizes sizes =
        made.sampler->sample(made.graph, starts.data, at ? bounds.data() : nullptr, starts.size, options_);
    std::vector<int64_t> offsets;
    int64_t end = 0;
    const auto add = [&](int64_t count, size_t bytes) {
      offsets.push_back(end);
      end += (count * static_cast<int64_t>(bytes) + kLine - 1) / kLine * kLine;
    };
    add(sizes.frontiers.back(), sizeof(N));
    add(sizes.frontiers.back(), sizeof(int32_t));
    for (size_t h = 0; h < sizes.edges.size(); ++h) {
      add(sizes.rows[h] + 1, sizeof(P));
      add(sizes.edges[h], sizeof(N));
      if (options_.edge_ids) add(sizes.edges[h], sizeof(P));
    }
    auto buffer = std::make_shared<SampledBuffer>(pool_, std::max(end, kLine));
    auto next = offsets.begin();
    const auto array = [&] { return buffer->data() + *next++; };
    TreesOut<P, N> out;
    out.nodes = reinterpret_cast<N*>(array());
    out.trees = reinterpret_cast<int32_t*>(array());
    for (size_t h = 0; h < sizes.edges.size(); ++h) {
      auto* const indptr = reinterpret_cast<P*>(array());
      auto* const indices = reinterpret_cast<N*>(array());
      out.blocks.push_back({indptr, indices, options_.edge_ids ? reinterpret_cast<P*>(array()) : nullptr});
    }
    made.sampler->write(out);
    read_.require_whole();
    return {sizes.frontiers, sizes.edges, sizes.rows, sizes.new_by_type, offsets, std::move(buffer)};
  }

  // What a tree sees whose seed has this time.
  Bound bound_at(int64_t time) const {
    const SeedTimes& known = of_seeds_;
    const auto* const end = known.values + known.num_values;
    const auto until = [&](int64_t at, bool with_equal) {
      const auto* const place =
          with_equal ? std::upper_bound(known.values, end, at) : std::lower_bound(known.values, end, at);
      return static_cast<int32_t>(place - known.values);
    };
    return {known.has_window ? until(known.since(time), true) : 0, until(time, !options_.bounds.strict)};
  }

  const py::object indptr_, indices_, times_, picks_;  // the core holds addresses of theirs
  TreeOptions options_{};
  SeedTimes of_seeds_;
  std::shared_ptr<BufferPool> pool_;
  LongMutex turn_;
  std::variant<std::unique_ptr<Made<int32_t, int32_t>>, std::unique_ptr<Made<int64_t, int32_t>>,
               std::unique_ptr<Made<int64_t, int64_t>>>
      made_;
  ListBytes read_;
  bool busy_ = false;  // somebody has the turn
  // A child leaves alone what another thread was using at the fork.
  ForkHook hook_{{{}, {}, [this] {
                    if (!busy_) return;
                    busy_ = false;
                    const auto renew = [](auto& made) {
                      static_cast<void>(made->sampler.release());
                      using Sampler = typename std::decay_t<decltype(made->sampler)>::element_type;
                      made->sampler = std::make_unique<Sampler>(made->workers);
                    };
                    std::visit(renew, made_);
                  }}};
};

}  // namespace

void bind_trees(py::module_& m) {
  bind_times(m);
  py::class_<AnyTreeSampler>(m, "TreeSampler")
      .def(py::init<py::object, py::object, const std::vector<std::vector<int64_t>>&,
                    const std::vector<Types::Entry>&, py::object, bool, bool, bool, bool, int64_t,
                    py::object>(),
           py::arg("indptr"), py::arg("indices"), py::arg("fanouts"), py::arg("types"), py::arg("times"),
           py::arg("paths"), py::arg("last"), py::arg("replace"), py::arg("edge_ids"), py::arg("num_threads"),
           py::arg("picks") = py::none())
      .def("sample", &AnyTreeSampler::sample, py::arg("seeds"), py::arg("times"), py::arg("key"),
           py::arg("next_key") = uint64_t{0}, py::arg("phase") = uint32_t{0});
}

}  // namespace loader
