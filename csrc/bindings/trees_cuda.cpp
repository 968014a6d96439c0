// Exports the GPU's sampler of trees: checks what Python hands over, launches, waits for the sizes without
// the GIL.
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/sampler_result.h"
#include "bindings/sampler_room.h"
#include "bindings/trees.h"
#include "sampler/cuda/tree_launch.h"

namespace loader {
namespace {

// The sampler of one graph on one device. Python allocates what `plan` asks for, hands it over (`use`), and
// keeps it as long as kernels may run. With device -1 there is no GPU: the graph's arrays are meta tensors,
// of the times only the rules are read, and only `plan` can be called.
template <typename P, typename N>
class TreeEngine {
 public:
  TreeEngine(const TreeEngine&) = delete;
  TreeEngine& operator=(const TreeEngine&) = delete;

  TreeEngine(py::handle indptr, py::handle indices, const std::vector<std::vector<int64_t>>& fanouts,
             const py::object& relation_fanouts, const std::vector<Types::Entry>& types,
             const py::object& times, bool paths, bool last, bool replace, bool edge_ids, int device,
             const py::object& picks)
      : device_(device),
        args_(
            as_args(make_choice(picks, replace, indices.attr("numel")().cast<int64_t>(), Place(kGpu, device)),
                    last)) {
    const Types checked(types, fanouts, true);
    results_ = std::make_shared<Results>(checked.relations(), checked.once());
    if (fanouts.empty() || fanouts.size() > kMaxHops)
      throw py::value_error("fanouts has " + std::to_string(fanouts.size()) + " hops; 1 to " +
                            std::to_string(kMaxHops) + " are possible");
    const bool meta = device_ < 0;
    const View<const P> offsets =
        meta ? view<const P>(indptr, "indptr", -1, "meta") : gpu_view<const P>(indptr, "indptr", -1, device);
    const View<const N> sources = meta ? view<const N>(indices, "indices", -1, "meta")
                                       : gpu_view<const N>(indices, "indices", -1, device);
    if (offsets.size < 1)
      throw py::value_error("indptr is empty; it has one entry more than there are lists");
    const py::object read_times = meta ? py::none() : times;
    const auto graph = timed_graph(checked, offsets, sources, read_times, Place(kGpu, device));
    BoundRule rule{};
    SeedTimes of_seeds{};
    if (!times.is_none()) {
      const auto& given = times.cast<const Times&>();
      rule = meta ? BoundRule{given.of_edge, given.strict, nullptr} : given.rule(Place(kGpu, device));
      of_seeds = meta ? SeedTimes{true} : given.of_seeds(Place(kGpu, device));
    }
    if (rule.of_edge && !paths)
      throw py::value_error("the bounds of edges need paths: two edges may lead to a node of a tree");
    const auto [most, takes_all] = checked.most();
    takes_all_ = takes_all != 0;
    const auto wanted = static_cast<int64_t>(fanouts.size()) * checked.num_relations();
    const int16_t* const by_relation =
        meta ? nullptr : view<const int16_t>(relation_fanouts, "relation_fanouts", wanted, kGpu).data;
    const int64_t widest = *std::max_element(most.begin(), most.end());
    const auto set = [&](auto& args) {
      using Choice = typename std::decay_t<decltype(args)>::Choice;
      args.lists = graph.lists;
      args.num_nodes = graph.num_nodes;
      args.hops = static_cast<int>(fanouts.size());
      args.num_relations = static_cast<int>(checked.num_relations());
      args.relation_fanouts = by_relation;
      if constexpr (std::is_same_v<Choice, ScanChoice>)
        args.race_widest = static_cast<int>(widest);
      else
        args.widest = static_cast<int>(widest);
      args.bounds = rule;
      args.times = of_seeds;
      args.paths = paths;
      args.edge_ids = edge_ids;
    };
    std::visit(set, args_);
  }

  // What the following mini-batches are, see Engine::plan. Of all trees of a mini-batch together `rows` lists
  // are looked at and `picks` entries picked. The table of one that does not fit `shared_places` has `table`
  // places. `blocks`: of a launch, at most.
  py::list plan(int64_t num_seeds, int64_t slots, const std::vector<int64_t>& frontier_capacity,
                const std::vector<int64_t>& edge_capacity, const std::vector<int64_t>& row_capacity,
                const std::vector<int64_t>& indices_at, const std::vector<int64_t>& indptr_at,
                const std::vector<int64_t>& edge_ids_at, int64_t edges_at, int64_t trees_at, int64_t rows,
                int64_t picks, int64_t table, int64_t blocks, int64_t threads, int64_t shared_places,
                int64_t shared_sorted) {
    if (slots < 1 || slots > kMaxBatchesPerLaunch)
      throw py::value_error("slots is " + std::to_string(slots) + "; it must be in 1 to " +
                            std::to_string(kMaxBatchesPerLaunch));
    const auto most_trees = std::min(kMostTrees, int64_t{INT32_MAX});
    if (num_seeds < 0 || num_seeds > most_trees || rows < 0 || rows > kMostTreeEntries || picks < 0 ||
        picks + num_seeds > kMostTreeEntries)
      throw std::overflow_error("the trees of a mini-batch of " + std::to_string(num_seeds) +
                                " seeds have up to " + std::to_string(picks) + " edges and " +
                                std::to_string(rows) +
                                " lists, which 32 bits do not number; use fewer seeds or smaller fanouts");
    if (blocks < 1 || blocks > kMostTreeBlocks)
      throw py::value_error("blocks is " + std::to_string(blocks) + "; it must be in 1 to " +
                            std::to_string(kMostTreeBlocks));
    if (threads < 64 || threads > kMostTreeBlock || threads % 32 != 0)
      throw py::value_error("threads is " + std::to_string(threads) +
                            "; it must be a multiple of 32 in 64 to " + std::to_string(kMostTreeBlock));
    const auto is_power = [](int64_t n) { return n > 0 && (n & (n - 1)) == 0; };
    if (table != 0 && (!is_power(table) || table > kMostTreePlaces))
      throw std::overflow_error("a tree needs a table of " + std::to_string(table) + " places; at most " +
                                std::to_string(kMostTreePlaces) + " are possible: use smaller fanouts");
    if (!is_power(shared_places) || !is_power(shared_sorted) || shared_places > 1 << 16 ||
        shared_sorted > 1 << 16)
      throw py::value_error("shared_places and shared_sorted must be powers of two up to 65,536");
    std::visit(
        [&](auto& args) {
          const auto hops = static_cast<size_t>(args.hops);
          if (frontier_capacity.size() != hops + 1 || edge_capacity.size() != hops ||
              row_capacity.size() != hops || indices_at.size() != hops || indptr_at.size() != hops ||
              edge_ids_at.size() != (args.edge_ids ? hops : 0))
            throw py::value_error("one offset and one capacity is needed for each of " +
                                  std::to_string(hops) + " hops");
          for (size_t h = 0; h < hops; ++h) {
            check_edge_count<P>(edge_capacity[h]);
            args.edge_capacity[h] = edge_capacity[h];
            args.row_capacity[h] = row_capacity[h];
            args.indices_at[h] = indices_at[h];
            args.indptr_at[h] = indptr_at[h];
            args.edge_ids_at[h] = args.edge_ids ? edge_ids_at[h] : 0;
          }
          std::copy(frontier_capacity.begin(), frontier_capacity.end(), args.frontier_capacity);
          if (frontier_capacity.back() > int64_t{std::numeric_limits<N>::max()})
            throw std::overflow_error("the trees have up to " + std::to_string(frontier_capacity.back()) +
                                      " nodes together, which exceeds 32-bit ids; use fewer seeds");
          memory_bytes_ = output_bytes<P, N>({frontier_capacity.back(), edge_capacity, row_capacity.data(),
                                              indices_at, indptr_at, edge_ids_at, edges_at});
          if (trees_at < 0 || trees_at % 4)
            throw py::value_error("trees_at is " + std::to_string(trees_at) +
                                  "; it must be at least 0, and a multiple of 4");
          constexpr int64_t kTree = sizeof(int32_t);
          memory_bytes_ = std::max(memory_bytes_, trees_at + kTree * frontier_capacity.back());
          args.shared_places = static_cast<int>(shared_places);
          args.shared_sorted = static_cast<int>(shared_sorted);
        },
        args_);
    planned_ = false;
    edges_at_ = edges_at;
    trees_at_ = trees_at;
    slots_ = std::max(slots_, slots);
    blocks_ = blocks;
    threads_ = static_cast<int>(threads);
    table_ = std::max(table_, table);
    seeds_ = std::max<int64_t>({seeds_, num_seeds, 1});
    rows_ = std::max<int64_t>({rows_, rows, 1});
    picks_ = std::max<int64_t>({picks_, picks, 1});
    py::list arrays;
    std::visit(
        [&](auto& args) {
          for_each_array(args, [&](const char* name, auto*& at, int64_t entries, bool zero) {
            using T = std::remove_reference_t<decltype(*at)>;
            arrays.append(
                py::make_tuple(name, std::string(Stored<T>::name()), Stored<T>::kEach * entries, zero));
          });
        },
        args_);
    return arrays;
  }

  // The arrays that the last `plan` asked for, by name: of that type and length, on the GPU.
  void use(const py::dict& arrays) {
    std::visit(
        [&](auto& args) {
          for_each_array(args, [&](const char* name, auto*& at, int64_t entries, bool) {
            using T = std::remove_reference_t<decltype(*at)>;
            if (!arrays.contains(name)) throw py::value_error(std::string("there is no array ") + name);
            using Entry = typename Stored<T>::Entry;
            at = reinterpret_cast<T*>(view<Entry>(arrays[name], name, Stored<T>::kEach * entries, kGpu).data);
          });
          args.trees_capacity = seeds_;
          args.groups_capacity = 1 << tree_group_bits(seeds_);
          args.vertices_capacity = vertices();
          args.rows_capacity = rows_;
          args.picks_capacity = picks_;
          args.table_capacity = table_;
        },
        args_);
    planned_ = true;
  }

  void add_headers(const py::object& memory) { results_->add<HeteroHeader>(memory); }

  // (seeds, keys, memory, None): there is nothing else, see Engine::Batch
  using Batch = std::tuple<py::object, std::tuple<uint64_t, uint64_t, uint32_t>, py::object, py::none>;

  // Launches mini-batches by the last plan, see Engine::launch.
  std::pair<int, std::vector<Result>> launch(const std::vector<Batch>& batches, int blocks,
                                             StreamHandle stream) {
    if (device_ < 0) throw std::runtime_error("a sampler of device -1 only tells sizes");
    if (!planned_) throw std::runtime_error("there is no plan, or not its arrays");
    if (batches.empty() || static_cast<int64_t>(batches.size()) > slots_)
      throw py::value_error("there are " + std::to_string(batches.size()) +
                            " mini-batches; the plan is for 1 to " + std::to_string(slots_));
    std::vector<Result> results;
    results.reserve(batches.size());
    const gpu::Stream on = stream_of(stream);
    const Place place{kGpu, device_};
    const int most = static_cast<int>(blocks > 0 ? std::min<int64_t>(blocks, blocks_) : blocks_);
    const int launches = std::visit(
        [&](auto& args) {
          args.num_batches = static_cast<int>(batches.size());
          for (size_t i = 0; i < batches.size(); ++i) {
            const auto& seeds = std::get<0>(batches[i]);
            const auto& memory = std::get<2>(batches[i]);
            const auto& [key, next_key, phase] = std::get<1>(batches[i]);
            const auto [from, num_seeds] = seeds_of(seeds, args.times.are_there, place);
            if (num_seeds > args.frontier_capacity[0] || num_seeds > args.trees_capacity)
              throw py::value_error("there are " + std::to_string(num_seeds) +
                                    " seeds; the plan is for up to " +
                                    std::to_string(args.frontier_capacity[0]));
            uint8_t* const to = output_memory(memory, memory_bytes_, place);
            auto* const of_trees = reinterpret_cast<int32_t*>(to + trees_at_);
            results.emplace_back(results_, ++sequence_, args.hops, device_, on);
            args.batches[i] = {
                from, num_seeds, key, to, to + edges_at_, of_trees, results.back().header(), sequence_};
            if constexpr (std::is_same_v<typename std::decay_t<decltype(args)>::Choice, ScanChoice>)
              args.turns[i] = {next_key, phase};
          }
          return doing("launching the sampler", [&] {
            const gpu::OnDevice current(device_);
            return launch_trees(args, takes_all_, most, threads_, device_, on);
          });
        },
        args_);
    return {launches, std::move(results)};
  }

  size_t free_headers() const { return results_->count(); }

 private:
  // Where seeds lie, [num_seeds] or with their times [num_seeds, 2], and how many there are.
  static std::pair<const void*, int64_t> seeds_of(py::handle seeds, bool with_times, const Place& place) {
    if (!with_times) {
      const auto ids = view<const N>(seeds, "seeds", -1, place);
      return {ids.data, ids.size};
    }
    const auto pairs = view<const int64_t>(seeds, "seeds", -1, place);
    if (pairs.size % 2)
      throw py::value_error("seeds has " + std::to_string(pairs.size) +
                            " elements; it must have an id and a time of each");
    return {pairs.data, pairs.size / 2};
  }

  template <typename Choice>
  using Args = TreeArgs<P, N, Choice>;
  using AnyArgs = std::variant<Args<UniformChoice>, Args<LastChoice>, Args<ScanChoice>>;

  static AnyArgs as_args(const AnyChoice& choice, bool last) {
    return std::visit(
        [last](const auto& kind) -> AnyArgs {
          using Kind = std::decay_t<decltype(kind)>;
          constexpr bool kUniform = std::is_same_v<Kind, UniformChoice>;
          if constexpr (kUniform || !Kind::kCountsByDegree) {
            if (last) {
              if constexpr (kUniform)
                if (!kind.replace) return Args<LastChoice>{};
              throw py::value_error("the last entries are picked once and without weights");
            }
            using Choice = std::conditional_t<kUniform, UniformChoice, ScanChoice>;
            Args<Choice> args{};
            if constexpr (kUniform)
              args.choice = kind;
            else
              args.choice = as_scan(kind);
            return args;
          } else {
            throw py::value_error(
                "a row of a tree sees a part of its list, which has no table of weights: use Race");
          }
        },
        choice);
  }

  // How an array of T is stored in a tensor.
  template <typename T>
  struct Stored {
    static constexpr bool kWhole = std::is_integral_v<T>;
    static constexpr int64_t kEach = kWhole ? 1 : sizeof(T);
    using Entry = std::conditional_t<kWhole, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>, uint8_t>;
    static constexpr const char* name() { return dtype_name<Entry>() + sizeof("torch.") - 1; }
  };

  // Of a mini-batch: each plan has so few, though one may have the most seeds and another one the most picks.
  int64_t vertices() const { return std::min(seeds_ + picks_, kMostTreeEntries); }

  // The arrays of the workspace: calls `f(name, pointer, entries, whether they are zero at first and between
  // launches)`.
  template <typename Choice, typename F>
  void for_each_array(Args<Choice>& args, const F& each) {
    const auto f = [&](const char* name, auto*& at, int64_t entries, bool zero = false) {
      each(name, at, slots_ * entries, zero);
    };
    const int64_t by_tree = (args.hops + 1) * seeds_;
    const int64_t by_type = (args.hops + 1) * args.lists.num_types * seeds_;
    const int groups = 1 << tree_group_bits(seeds_);
    f("state", args.state, 1, true);
    f("nodes_at", args.vertices_at, by_tree);
    f("nodes_known", args.vertices_known, by_tree);
    f("rows_at", args.rows_at, by_tree);
    f("picks_at", args.picks_at, by_tree);
    f("found", args.found, by_type);
    f("edges", args.edges, by_type);
    f("sums", args.sums, kSumsAt + 2 * tree_sums(args.hops, args.lists.num_types, groups), true);
    f("tree_bounds", args.tree_bounds, args.times.are_there ? seeds_ : 0);
    f("nodes", args.vertices, vertices());
    f("node_bounds", args.vertex_bounds, args.bounds.of_edge ? vertices() : 0);
    f("row_begin", args.row_begin, rows_);
    f("row_degree", args.row_degree, rows_);
    f("row_first", args.row_first, rows_);
    f("row_drawn", args.row_drawn, rows_);
    f("places", args.places, picks_);
    f("picks", args.picks, picks_);
    f("sources", args.sources, picks_);
    f("pick_bounds", args.pick_bounds, args.bounds.of_edge ? picks_ : 0);
    each("keys", args.keys, blocks_ * table_, false);
    each("numbers", args.numbers, blocks_ * table_, false);
    each("sorted", args.sorted, blocks_ * table_ / 2, false);
    each("sorted_places", args.sorted_places, blocks_ * table_ / 2, false);
  }

  const int device_;
  AnyArgs args_;
  bool takes_all_ = false, planned_ = false;
  int64_t slots_ = 0, edges_at_ = 0, trees_at_ = 0, memory_bytes_ = 0, seeds_ = 0, rows_ = 0, picks_ = 0,
          table_ = 0, blocks_ = 0;
  int threads_ = 0;
  std::shared_ptr<Results> results_;
  uint64_t sequence_ = 0;
};

template <typename P, typename N>
void bind_tree_engine(py::module_& m, const char* name) {
  using Class = TreeEngine<P, N>;
  py::class_<Class>(m, name, py::module_local())
      .def(py::init<py::handle, py::handle, const std::vector<std::vector<int64_t>>&, const py::object&,
                    const std::vector<Types::Entry>&, const py::object&, bool, bool, bool, bool, int,
                    const py::object&>(),
           py::arg("indptr"), py::arg("indices"), py::kw_only(), py::arg("fanouts"),
           py::arg("relation_fanouts"), py::arg("types"), py::arg("times"), py::arg("paths"), py::arg("last"),
           py::arg("replace"), py::arg("edge_ids"), py::arg("device"), py::arg("picks") = py::none())
      .def("plan", &Class::plan, py::kw_only(), py::arg("num_seeds"), py::arg("slots"),
           py::arg("frontier_capacity"), py::arg("edge_capacity"), py::arg("row_capacity"),
           py::arg("indices_at"), py::arg("indptr_at"), py::arg("edge_ids_at"), py::arg("edges_at"),
           py::arg("trees_at"), py::arg("rows"), py::arg("picks"), py::arg("table"), py::arg("blocks"),
           py::arg("threads"), py::arg("shared_places"), py::arg("shared_sorted"))
      .def("use", &Class::use)
      .def("add_headers", &Class::add_headers)
      .def("launch", &Class::launch)
      .def_property_readonly("free_headers", &Class::free_headers);
}

}  // namespace

void bind_trees_cuda(py::module_& m) {
  bind_tree_engine<int32_t, int32_t>(m, "TreeCudaSampler_i32_i32");
  bind_tree_engine<int64_t, int32_t>(m, "TreeCudaSampler_i64_i32");
  bind_tree_engine<int64_t, int64_t>(m, "TreeCudaSampler_i64_i64");
}

}  // namespace loader
