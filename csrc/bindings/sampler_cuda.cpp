// Exports the GPU sampler: checks what Python hands over, launches, waits for the sizes without the GIL.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "bindings/choice.h"
#include "bindings/hetero.h"
#include "bindings/sampler_result.h"
#include "bindings/sampler_room.h"
#include "bindings/views.h"
#include "sampler/cuda/launch.h"
#include "sampler/sampler.h"

namespace loader {
namespace {

// The sampler of one graph on one device. Python allocates what `plan` asks for, hands it over (`use`), and
// keeps it as long as kernels may run. With device -1 there is no GPU: the graph's arrays are meta tensors,
// which have sizes and no memory, and only `plan` can be called.
template <typename ListsOf>
class Engine {
 public:
  using Lists = ListsOf;
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  static constexpr bool kHetero = std::is_same_v<typename Lists::Row, HeteroRow>;
  using Header = std::conditional_t<kHetero, HeteroHeader, SampleHeader>;

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Engine(py::handle indptr, py::handle indices, const std::vector<int64_t>& fanouts, bool replace,
         bool edge_ids, bool pad, int device, const py::object& picks, int reads,
         const py::object& cached_begins, const py::object& cached_entries, Types types = {},
         const py::object& relation_fanouts = py::none())
      : types_(std::move(types)),
        device_(device),
        reads_(static_cast<Reads>(reads)),
        races_(py::isinstance<Race>(picks)),
        scans_(races_ || py::isinstance<Labor>(picks)),
        launched_(as_launched(
            make_choice(picks, replace, indices.attr("numel")().cast<int64_t>(), Place(kGpu, device)))),
        args_(std::visit([](auto& args) -> CommonArgs<Lists>& { return args; }, launched_)),
        results_(std::make_shared<Results>(types_.relations(), types_.once())) {
    const View<const P> offsets = graph_view<const P>(indptr, "indptr");    // [num_nodes + 1]
    const View<const N> sources = graph_view<const N>(indices, "indices");  // [num_edges]
    if (offsets.size < 1)
      throw py::value_error("indptr is empty; it has one entry more than there are nodes");
    if (fanouts.empty() || fanouts.size() > kMaxHops)
      throw py::value_error("there are " + std::to_string(fanouts.size()) + " fanouts; 1 to " +
                            std::to_string(kMaxHops) + " are possible");
    if constexpr (kHetero) {
      args_.lists = types_.graph(offsets, sources.data).lists;
      args_.num_nodes = types_.num_vertices();
      args_.num_relations = static_cast<int>(types_.num_relations());
      args_.once = types_.once();
      args_.takes_all = types_.most().second;
      args_.takes_whole = types_.takes_whole();
      const auto wanted = static_cast<int64_t>(fanouts.size()) * args_.num_relations;
      args_.relation_fanouts =
          device_ < 0 ? nullptr
                      : view<const int16_t>(relation_fanouts, "relation_fanouts", wanted, kGpu).data;
    } else {
      args_.lists = {offsets.data, sources.data};
      args_.num_nodes = offsets.size - 1;
    }
    args_.lines.set_lists(sources.data, sources.size, reads_);
    if (!cached_begins.is_none())
      args_.lines.cached = {view<const P>(cached_begins, "cached_begins", offsets.size - 1, kGpu).data,
                            view<const N>(cached_entries, "cached_entries", -1, kGpu).data};
    args_.hash.shift = range_shift(args_.num_nodes);
    args_.hops = static_cast<int>(fanouts.size());
    for (int h = 0; h < args_.hops; ++h) args_.fanouts[h] = static_cast<int>(fanouts[h]);
    args_.edge_ids = edge_ids;
    args_.pad = pad;
    args_.shared_bytes =
        device_ < 0 ? kMostShared : gpu::attribute(device_, gpu::Attribute::kSharedMemoryPerBlockOptin);
    if (const int most = most_fanout(args_.shared_bytes); widest_fanout(args_.fanouts, args_.hops) > most)
      throw py::value_error(
          "fanout " + std::to_string(widest_fanout(args_.fanouts, args_.hops)) +
          " is too much for this GPU, whose thread blocks have " + std::to_string(args_.shared_bytes / 1024) +
          " KiB of shared memory; give at most " + std::to_string(most) + ", or -1 for all neighbors");
    std::visit([&](auto& args) { plan_scan(args, sources.size); }, launched_);
  }

  // What the following mini-batches are: of at most `num_seeds` seeds, up to `slots` of them in one launch.
  // Outputs lie in one piece of memory each: `nodes` at 0 and each hop's `indices` from `indices_at` on, in
  // vertices; `edges_at` bytes further each hop's `indptr` and, where they are wanted, its edge ids, in P.
  // `lines`: of pinned memory that a launch has room for, if it reads by the line; what finds no room is read
  // by the word. Returns the arrays that `use` takes: (name, dtype, length, whether it is zero at first and
  // between launches). They only grow, but for bitmaps, which go with the first hash set.
  py::list plan(int64_t num_seeds, int64_t slots, int schedule, int vertex_set,
                const std::vector<int64_t>& frontier_capacity, const std::vector<int64_t>& edge_capacity,
                const std::vector<int64_t>& indices_at, const std::vector<int64_t>& indptr_at,
                const std::vector<int64_t>& edge_ids_at, int64_t edges_at, int64_t lines,
                const std::vector<int64_t>& row_capacity) {
    const auto hops = static_cast<size_t>(args_.hops);
    if (frontier_capacity.size() != hops + 1 || edge_capacity.size() != hops || indices_at.size() != hops ||
        indptr_at.size() != hops || edge_ids_at.size() != (args_.edge_ids ? hops : 0) ||
        row_capacity.size() != (kHetero ? hops : 0))
      throw py::value_error("one offset and one capacity is needed for each of " + std::to_string(hops) +
                            " hops");
    for (size_t h = 0; h < hops; ++h) {
      if (frontier_capacity[h] > frontier_capacity[h + 1])
        throw py::value_error("frontier_capacity must not decrease: one array holds all frontiers");
      if (indices_at[h] * sizeof(N) % 16 != 0) throw py::value_error("indices must be aligned to 16 bytes");
      check_edge_count<P>(edge_capacity[h]);
    }
    const auto set = static_cast<VertexSet>(vertex_set);
    if (scans_ && set != VertexSet::kHash && static_cast<Schedule>(schedule) != Schedule::kHopwise)
      throw py::value_error("picks that scan lists have bitmaps only hop by hop");
    if (set == VertexSet::kBitmap && frontier_capacity[hops] > UINT32_MAX)
      throw py::value_error("a mini-batch of up to " + std::to_string(frontier_capacity[hops]) +
                            " nodes; with bitmaps there can be 2^32 - 1");
    if (slots < 1 || slots > kMaxBatchesPerLaunch)
      throw py::value_error("slots is " + std::to_string(slots) + "; it must be in 1 to " +
                            std::to_string(kMaxBatchesPerLaunch));
    planned_ = false;
    args_.vertex_set = set;
    schedule_ = static_cast<Schedule>(schedule);
    edges_at_ = edges_at;
    memory_bytes_ = output_bytes<P, N>({frontier_capacity[hops], edge_capacity,
                                        kHetero ? row_capacity.data() : frontier_capacity.data(), indices_at,
                                        indptr_at, edge_ids_at, edges_at});
    for (size_t h = 0; h < hops; ++h) {
      args_.edge_capacity[h] = edge_capacity[h];
      args_.indices_at[h] = indices_at[h];
      args_.indptr_at[h] = indptr_at[h];
      args_.edge_ids_at[h] = args_.edge_ids ? edge_ids_at[h] : 0;
    }
    for (size_t h = 0; h <= hops; ++h) args_.frontier_capacity[h] = frontier_capacity[h];
    if constexpr (kHetero) std::copy(row_capacity.begin(), row_capacity.end(), args_.row_capacity);
    const bool uniform = std::holds_alternative<ArgsOf<UniformChoice>>(launched_);
    by_places_ = (reads_ != Reads::kWords || args_.lines.cached.begins) && !scans_ &&
                 lined_schedule(schedule_, set, uniform);
    if (schedule_ == Schedule::kCooperative && set == VertexSet::kBitmap && !by_places_ && !kHetero)
      schedule_ = one_launch(kernel_width<N>(args_.fanouts, args_.hops, args_.shared_bytes), uniform,
                             std::accumulate(edge_capacity.begin(), edge_capacity.end(), int64_t{0}), slots);
    const Room needed = room_of(num_seeds, lines);
    if (slots > slots_) {  // all arrays are made anew
      slots_ = slots;
      room_ = {};
    }
    if (args_.vertex_set == VertexSet::kHash && !hashed_) {
      hashed_ = true;  // the first guess of a mini-batch's size, which is too high, may have taken bitmaps
      room_.bitmaps = room_.vertices = 0;
    }
    room_.grow_to(needed);
    py::list arrays;
    for_each_array([&](const char* name, auto*& at, int64_t entries, bool zero, int64_t each) {
      using T = std::remove_reference_t<decltype(*at)>;
      arrays.append(
          py::make_tuple(name, std::string(Stored<T>::name()), Stored<T>::kEach * each * entries, zero));
    });
    return arrays;
  }

  // The arrays that the last `plan` asked for, by name: of that type and length, on the GPU.
  void use(const py::dict& arrays) {
    for_each_array([&](const char* name, auto*& at, int64_t entries, bool, int64_t each) {
      using T = std::remove_reference_t<decltype(*at)>;
      if (!arrays.contains(name)) throw py::value_error(std::string("there is no array ") + name);
      using Entry = typename Stored<T>::Entry;
      at =
          reinterpret_cast<T*>(view<Entry>(arrays[name], name, Stored<T>::kEach * each * entries, kGpu).data);
    });
    args_.lines.words = room_.line_words;
    args_.lines.capacity = room_.lines;
    args_.lines.places_capacity = room_.places;
    args_.lines.places = by_places_ ? places_ : nullptr;
    args_.lines.marks = by_places_ && room_.lines > 0 ? marks_ : nullptr;
    args_.rows_capacity = room_.rows;
    args_.picks_capacity = room_.picks;
    args_.bitmaps_stride = room_.bitmaps;
    args_.hash.size = room_.table;
    args_.hash.capacity = room_.found;
    const bool hash = args_.vertex_set == VertexSet::kHash;
    args_.local = hash ? local_by_place_ : local_by_vertex_;
    args_.local_stride = hash ? room_.table : room_.vertices;
    planned_ = true;
  }

  // More headers for mini-batches under way: `[n * cuda_header_bytes]` uint8, zero, in pinned host memory.
  void add_headers(const py::object& memory) { results_->add<Header>(memory); }

  // (seeds, keys, memory, sizes or None)
  using Keys = std::tuple<uint64_t, uint64_t, uint32_t>;
  using Batch = std::tuple<py::object, Keys, py::object, py::object>;

  // Launches mini-batches by the last plan, in `blocks` thread blocks (0: all that are resident at once).
  // Returns the number of kernels, and what finishes each. What a launch that fails leaves behind, whoever
  // called has to clear: arrays that are zero between launches may not be.
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
    args_.num_batches = static_cast<int>(batches.size());
    args_.lines.fetch_blocks = blocks > 0 ? fetch_blocks_ : 0;
    for (size_t i = 0; i < batches.size(); ++i) {
      const auto& [seeds, keys, memory, sizes] = batches[i];
      const auto& [key, next_key, phase] = keys;
      const auto from = view<const N>(seeds, "seeds", -1, place);  // [num_seeds]
      if (from.size > args_.frontier_capacity[0])
        throw py::value_error("there are " + std::to_string(from.size) + " seeds; the plan is for up to " +
                              std::to_string(args_.frontier_capacity[0]));
      uint8_t* const to = output_memory(memory, memory_bytes_, place);
      int64_t* const sizes_out = optional_view<int64_t>(sizes, "sizes", 2 * args_.hops + 1, place);
      results.emplace_back(results_, ++sequence_, args_.hops, device_, on);
      args_.batches[i] = {from.data, from.size, key,  to, to + edges_at_, sizes_out, results.back().header(),
                          sequence_, next_key,  phase};
    }
    const int launches = doing("launching the sampler", [&] {
      const gpu::OnDevice current(device_);
      return std::visit(
          [&](auto& args) {
            if constexpr (kHetero)
              return launch_hetero(args, blocks, device_, on);
            else
              return launch_sample(args, schedule_, blocks, device_, on);
          },
          launched_);
    });
    return {launches, std::move(results)};
  }

  size_t free_headers() const { return results_->count(); }

  // Thread blocks that copy lines, of launches whose number of blocks is given; 0: all.
  int fetch_blocks() const { return fetch_blocks_; }
  void set_fetch_blocks(int blocks) {
    if (blocks < 0)
      throw py::value_error("fetch_blocks is " + std::to_string(blocks) + "; it must be at least 0");
    fetch_blocks_ = blocks;
  }

 private:
  template <typename Choice>
  using ArgsOf = SampleArgs<Lists, Choice>;
  // What there is code for.
  using AnyArgs = std::conditional_t<
      kHetero,
      std::variant<ArgsOf<UniformChoice>, ArgsOf<WeightedChoice>, ArgsOf<TopKChoice>, ArgsOf<ScanChoice>>,
      std::variant<ArgsOf<UniformChoice>, ArgsOf<WeightedChoice>, ArgsOf<TopKChoice>, ArgsOf<LaborChoice>,
                   ArgsOf<RaceChoice>>>;

  static AnyArgs as_launched(const AnyChoice& choice) {
    return std::visit(
        [](const auto& kind) -> AnyArgs {
          using Choice = std::decay_t<decltype(kind)>;
          if constexpr (kHetero && !Choice::kCountsByDegree) {
            ArgsOf<ScanChoice> args{};
            args.choice = as_scan(kind);
            return args;
          } else {
            ArgsOf<Choice> args{};
            args.choice = kind;
            return args;
          }
        },
        choice);
  }

  // An array of the graph: where kernels read it, or its size only.
  template <typename T>
  View<T> graph_view(py::handle array, const char* name) const {
    return device_ < 0 ? view<T>(array, name, -1, "meta") : gpu_view<T>(array, name, -1, device_);
  }

  // How lists are scanned, if they are.
  template <typename Choice>
  static void plan_scan(ArgsOf<Choice>& args, int64_t num_edges) {
    if constexpr (!Choice::kCountsByDegree) {
      ScanArgs& scan = args.scan;
      scan.width = scan_width(args.choice, widest_fanout(args.fanouts, args.hops));
      scan.piece = piece_entries(num_edges, scan.width);
      scan.pieces_capacity = 2 * num_edges / scan.piece;
    }
  }

  // How an array of T is stored in a tensor.
  template <typename T>
  struct Stored {
    static constexpr bool kWhole = std::is_integral_v<T>;
    static constexpr int64_t kEach = kWhole ? 1 : sizeof(T);
    using Entry = std::conditional_t<kWhole, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>, uint8_t>;
    static constexpr const char* name() { return dtype_name<Entry>() + sizeof("torch.") - 1; }
  };

  // The arrays of a workspace, one line each: calls `f(name, pointer, entries for each mini-batch of a
  // launch, whether they are zero at first and between launches, for how many mini-batches they are there)`.
  template <typename F>
  void for_each_array(const F& each) {
    const auto f = [&](const char* name, auto*& at, int64_t entries, bool zero) {
      each(name, at, entries, zero, slots_);
    };
    HashArgs<N>& hash = args_.hash;
    const int64_t ranges = room_.found ? kRanges : 0, begins = room_.found ? range_begins() : 0;
    f("totals", args_.totals, workspace_totals(), false);
    f("state", args_.state, 1, true);
    f("row_begin", args_.row_begin, room_.rows, false);
    f("row_degree", args_.row_degree, room_.rows, false);
    if constexpr (kHetero) {
      f("row_node", args_.row_vertex, room_.rows, false);
      f("row_kind", args_.row_kind, room_.rows, false);
    }
    f("row_picks", args_.row_picks, scans_ ? room_.rows : 0, false);
    ScanArgs& scan = args_.scan;
    const int64_t piece_picks = scan.pieces_capacity * scan.width;
    f("scan_places", scan.places, scans_ ? room_.rows * scan.width : 0, false);
    f("pieces", scan.pieces, scan.pieces_capacity, true);  // of each only that it is done
    f("piece_places", scan.piece_places, piece_picks, false);
    f("piece_times", scan.piece_times, races_ ? piece_picks : 0, false);
    f("list", args_.list, room_.rows, false);
    f("picks", args_.picks, room_.picks, false);
    f("positions", args_.positions, args_.edge_ids ? room_.picks : 0, false);
    f("bitmaps", args_.bitmaps, room_.bitmaps, true);
    f("local_by_node", local_by_vertex_, room_.vertices, false);
    f("keys", hash.keys, room_.table, true);
    f("local_by_place", local_by_place_, room_.table, false);
    f("found", hash.found, room_.found, false);
    f("places", hash.places, room_.found, false);
    f("offsets", hash.offsets, room_.found, false);
    // Read in packs, the last of which may reach beyond what was written; nothing is made of that.
    f("grouped", hash.grouped, room_.found, true);
    f("grouped_place", hash.grouped_place, room_.found, false);
    f("counts", hash.counts, ranges, true);
    f("begins", hash.begins, begins, false);
    f("places_of_picks", places_, room_.places, false);
    const int64_t words = room_.line_words;
    each("line_marks", marks_, words, true, 1);
    each("line_ranks", args_.lines.ranks, words * rank_width(args_.hops), true, 1);
    each("lines_used", args_.lines.used, words > 0, true, 1);
    each("staged", args_.lines.staged, room_.lines * args_.lines.num_in_unit(), false, 1);
  }

  Room room_of(int64_t num_seeds, int64_t lines) const {
    const int hops = args_.hops;
    Room room;
    if (by_places_) {
      // At least one: an array of a workspace that is in use is not empty.
      room.places = std::max<int64_t>(*std::max_element(args_.edge_capacity, args_.edge_capacity + hops), 1);
      room.line_words = lines > 0 ? args_.lines.needed_words() : 0;
      room.lines = lines;
    }
    // The list may hold seeds once more, see Cooperative::push.
    room.rows = args_.frontier_capacity[hops - 1] + num_seeds;
    // Rows of hops add up if a hop has only new ones, unless they are scanned: then they lie in place of
    // those before. At least one: no array that kernels use is empty.
    if constexpr (kHetero) {
      const int64_t* const of_hop = args_.row_capacity;
      room.rows = 1 + (!args_.once ? of_hop[hops - 1]
                       : scans_    ? *std::max_element(of_hop, of_hop + hops)
                                   : std::accumulate(of_hop, of_hop + hops, int64_t{0}));
    }
    const auto whole_groups = [](int64_t rows) { return (rows + 31) / 32 * 32; };
    if (args_.vertex_set == VertexSet::kHash) {
      // At least one group: without seeds the kernels still look at the ranges' counts.
      room.found = std::max<int64_t>(whole_groups(args_.frontier_capacity[hops]), 32);
      room.table = table_size(room.found);
      if (room.table > kMaxTable)
        throw std::overflow_error("a mini-batch of up to " + std::to_string(room.found) +
                                  " nodes is more than a hash set's 2^30; use node_set='bitmap'");
      return room;
    }
    room.bitmaps = std::max<int64_t>(bitmap_entries(args_.num_nodes, hops), 1);
    room.vertices = std::max<int64_t>(args_.num_nodes, 1);
    if (schedule_ == Schedule::kCooperative && !by_places_ && !kHetero) {
      for (int h = 0; h < hops; ++h)
        room.picks += whole_groups(std::min(room.rows, args_.frontier_capacity[h] + num_seeds)) *
                      pick_width(args_.fanouts[h]);
    }
    return room;
  }

  // Shared memory of a block on the GPUs that have most (compute capability 9.0): of these a plan is largest.
  static constexpr int64_t kMostShared = 227 * 1024;

  const Types types_;  // of HeteroLists
  const int device_;
  const Reads reads_;
  const bool races_, scans_;
  AnyArgs launched_;
  CommonArgs<Lists>& args_;  // of `launched_`
  N *local_by_vertex_ = nullptr, *local_by_place_ = nullptr;
  Schedule schedule_ = Schedule::kHopwise;
  int64_t slots_ = 0, edges_at_ = 0, memory_bytes_ = 0;
  bool hashed_ = false, planned_ = false, by_places_ = false;
  int fetch_blocks_ = kFetchBlocks;
  P* places_ = nullptr;
  uint32_t* marks_ = nullptr;
  Room room_;
  std::shared_ptr<Results> results_;
  uint64_t sequence_ = 0;
};

template <typename Class>
void bind_methods(py::class_<Class>& bound) {
  bound
      .def("plan", &Class::plan, py::kw_only(), py::arg("num_seeds"), py::arg("slots"), py::arg("schedule"),
           py::arg("node_set"), py::arg("frontier_capacity"), py::arg("edge_capacity"), py::arg("indices_at"),
           py::arg("indptr_at"), py::arg("edge_ids_at"), py::arg("edges_at"), py::arg("lines") = 0,
           py::arg("row_capacity") = std::vector<int64_t>{})
      .def("use", &Class::use)
      .def("add_headers", &Class::add_headers)
      .def("launch", &Class::launch)
      .def_property_readonly("free_headers", &Class::free_headers)
      .def_property("fetch_blocks", &Class::fetch_blocks, &Class::set_fetch_blocks);
}

// Of HeteroLists. `types`: see Types; `relation_fanouts`: the same fanouts, int16, on the GPU.
template <typename P, typename N>
void bind_hetero_engine(py::module_& m, const char* name) {
  using Class = Engine<HeteroLists<P, N>>;
  py::class_<Class> bound(m, name, py::module_local());
  bound.def(py::init([](py::handle indptr, py::handle indices, std::vector<std::vector<int64_t>> fanouts,
                        const py::object& relation_fanouts, const std::vector<Types::Entry>& types, bool once,
                        bool replace, bool edge_ids, int device, const py::object& picks) {
              Types checked(types, std::move(fanouts), once);
              const std::vector<int64_t> widest = checked.most().first;
              return std::make_unique<Class>(indptr, indices, widest, replace, edge_ids, false, device, picks,
                                             0, py::none(), py::none(), std::move(checked), relation_fanouts);
            }),
            py::arg("indptr"), py::arg("indices"), py::kw_only(), py::arg("fanouts"),
            py::arg("relation_fanouts"), py::arg("types"), py::arg("once"), py::arg("replace"),
            py::arg("edge_ids"), py::arg("device"), py::arg("picks") = py::none());
  bind_methods(bound);
}

template <typename P, typename N>
void bind_engine(py::module_& m, const char* name) {
  using Class = Engine<PlainLists<P, N>>;
  py::class_<Class> bound(m, name, py::module_local());
  bound.def(py::init<py::handle, py::handle, const std::vector<int64_t>&, bool, bool, bool, int,
                     const py::object&, int, const py::object&, const py::object&>(),
            py::arg("indptr"), py::arg("indices"), py::kw_only(), py::arg("fanouts"), py::arg("replace"),
            py::arg("edge_ids"), py::arg("pad"), py::arg("device"), py::arg("picks") = py::none(),
            py::arg("reads") = 0, py::arg("cached_begins") = py::none(),
            py::arg("cached_entries") = py::none());
  bind_methods(bound);
}

}  // namespace

void bind_sampler_cuda(py::module_& m) {
  // Local to the module: tests load the same classes once more, for the host.
  py::class_<Result>(m, "CudaResult", py::module_local())
      .def("wait", &Result::wait)
      .def("peek", &Result::peek);
  bind_engine<int32_t, int32_t>(m, "CudaSampler_i32_i32");
  bind_engine<int64_t, int32_t>(m, "CudaSampler_i64_i32");
  bind_engine<int64_t, int64_t>(m, "CudaSampler_i64_i64");
  bind_hetero_engine<int32_t, int32_t>(m, "HeteroCudaSampler_i32_i32");
  bind_hetero_engine<int64_t, int32_t>(m, "HeteroCudaSampler_i64_i32");
  bind_hetero_engine<int64_t, int64_t>(m, "HeteroCudaSampler_i64_i64");
  m.attr("cuda_hetero_header_bytes") = sizeof(HeteroHeader);
  m.attr("cuda_header_bytes") = sizeof(SampleHeader);
  m.attr("cuda_max_batches_per_launch") = kMaxBatchesPerLaunch;
}

}  // namespace loader
