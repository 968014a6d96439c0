// Exports the CPU samplers: checks what Python hands over, picks the instantiation, releases the GIL.
#include "sampler/sampler.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "bindings/choice.h"
#include "bindings/hetero.h"
#include "bindings/sampled_buffer.h"
#include "bindings/unlocked.h"
#include "bindings/views.h"
#include "disk/faults.h"
#include "features/buffer_pool.h"
#include "sampler/cpu/fused.h"
#include "sampler/cpu/group.h"
#include "sampler/cpu/hopwise.h"

namespace loader {
namespace {

constexpr int64_t kMostPartEdges = int64_t{1} << 40;
constexpr int kIdleBuffers = 40;  // idle ones: of a group in use and of another under way

SampleOptions make_options(std::vector<int64_t> fanouts, bool edge_ids) {
  if (fanouts.empty() || fanouts.size() > kMaxHops)
    throw py::value_error("fanouts has " + std::to_string(fanouts.size()) + " entries; 1 to " +
                          std::to_string(kMaxHops) + " are possible");
  for (const int64_t k : fanouts)
    if (k != kAllNeighbors && (k < 1 || k > kMaxFanout))
      throw py::value_error("fanout " + std::to_string(k) + " is not possible: give 1 to " +
                            std::to_string(kMaxFanout) + ", or -1 for all neighbors");
  return {std::move(fanouts), {}, edge_ids, {}};
}

// One mini-batch that was sampled, or the error that it ended with.
struct Sampled {
  SampleSizes sizes;
  std::vector<int64_t> offsets;  // of the arrays in the buffer, bytes
  std::shared_ptr<SampledBuffer> buffer;
  std::exception_ptr error;

  using Arrays = std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>,
                            std::vector<int64_t>, std::shared_ptr<SampledBuffer>>;
  // (vertices within each number of hops, edges and lists of each hop, where arrays begin, their memory)
  Arrays take() {
    if (error) std::rethrow_exception(error);
    return {sizes.frontiers, sizes.edges, sizes.rows, offsets, std::move(buffer)};
  }

  // Takes memory for arrays of these sizes.
  template <typename P, typename N>
  SampleOut<P, N> place(const SampleSizes& announced, bool edge_ids,
                        const std::shared_ptr<BufferPool>& pool) {
    sizes = announced;
    int64_t end = 0;
    const auto add = [&](int64_t count, size_t bytes) {
      offsets.push_back(end);
      end += (count * static_cast<int64_t>(bytes) + kLine - 1) / kLine * kLine;
    };
    add(sizes.frontiers.back(), sizeof(N));
    for (size_t h = 0; h < sizes.edges.size(); ++h) {
      add(sizes.rows[h] + 1, sizeof(P));
      add(sizes.edges[h], sizeof(N));
      if (edge_ids) add(sizes.edges[h], sizeof(P));
    }
    buffer = std::make_shared<SampledBuffer>(pool, std::max(end, kLine));
    auto next = offsets.begin();
    SampleOut<P, N> out{reinterpret_cast<N*>(buffer->data() + *next++), {}};
    for (size_t h = 0; h < sizes.edges.size(); ++h) {
      auto* const indptr = reinterpret_cast<P*>(buffer->data() + *next++);
      auto* const indices = reinterpret_cast<N*>(buffer->data() + *next++);
      out.blocks.push_back(
          {indptr, indices, edge_ids ? reinterpret_cast<P*>(buffer->data() + *next++) : nullptr});
    }
    return out;
  }
};

// One Python class for the three combinations of types.
template <template <typename, typename> class Impl>
class AnySampler {
 public:
  AnySampler(py::object indptr, py::object indices, std::vector<int64_t> fanouts, bool replace, bool edge_ids,
             int64_t num_threads, int64_t part_edges, py::object picks, bool in_file, Types types = {},
             bool copies = false)
      : types_(std::move(types)),
        indptr_(std::move(indptr)),
        indices_(std::move(indices)),
        picks_(std::move(picks)),
        edge_ids_(edge_ids) {
    auto options = make_options(std::move(fanouts), edge_ids);
    types_.choose(options);
    options.in_file = in_file;
    options.copies = copies;
    if (copies && !(options.once && kFused))
      throw py::value_error("copies needs once, and the fused sampler");
    options.choice = make_choice(picks_, replace, indices_.attr("numel")().cast<int64_t>());
    check_num_threads(num_threads);
    if (part_edges < 1 || part_edges > kMostPartEdges)
      throw py::value_error("part_edges is " + std::to_string(part_edges) + "; it must be 1 to " +
                            std::to_string(kMostPartEdges));
    pool_ = std::make_shared<BufferPool>(kIdleBuffers);
    const bool wide_edges = dtype_of(indptr_) == "torch.int64",
               wide_nodes = dtype_of(indices_) == "torch.int64";
    if (wide_nodes)
      make<int64_t, int64_t>(options, static_cast<int>(num_threads), part_edges);
    else if (wide_edges)
      make<int64_t, int32_t>(options, static_cast<int>(num_threads), part_edges);
    else
      make<int32_t, int32_t>(options, static_cast<int>(num_threads), part_edges);
  }
  ~AnySampler() { pool_->clear(); }
  AnySampler(const AnySampler&) = delete;
  AnySampler& operator=(const AnySampler&) = delete;

  std::vector<std::unique_ptr<Sampled>> sample(const std::vector<py::object>& seeds,
                                               const std::vector<uint64_t>& keys,
                                               const std::vector<uint64_t>& next_keys,
                                               const std::vector<uint32_t>& phases) {
    if (seeds.size() != keys.size())
      throw py::value_error(std::to_string(seeds.size()) + " seeds and " + std::to_string(keys.size()) +
                            " keys; each mini-batch has one of each");
    if (next_keys.size() != phases.size() || (!phases.empty() && phases.size() != keys.size()))
      throw py::value_error(std::to_string(keys.size()) + " keys, " + std::to_string(next_keys.size()) +
                            " next keys and " + std::to_string(phases.size()) +
                            " phases; each mini-batch has one of each, or none has the last two");
    std::vector<BatchKeys> all;
    for (size_t i = 0; i < keys.size(); ++i)
      all.push_back({keys[i], phases.empty() ? 0 : next_keys[i], phases.empty() ? 0 : phases[i]});
    return std::visit([&](auto& impl) { return sample_as(*impl, seeds, all); }, impl_);
  }

 private:
  static constexpr bool kFused =
      std::is_constructible_v<Impl<int32_t, int32_t>, std::shared_ptr<Workers>, int64_t>;

  template <typename P, typename N>
  using Group = GroupSampler<Impl<P, N>>;

  template <typename P, typename N>
  void make(const SampleOptions& options, int num_threads, int64_t part_edges) {
    const auto offsets = offsets_view<P>(indptr_);
    const auto sources = view<const N>(indices_, "indices");
    check_offsets(offsets, sources.size);
    read_ = read_bytes(offsets, sources, options.choice);
    using Lists = typename Impl<P, N>::Lists;
    GraphOf<Lists> graph{};
    if constexpr (std::is_same_v<Lists, HeteroLists<P, N>>)
      graph = types_.graph(offsets, sources.data);
    else
      graph = {{offsets.data, sources.data}, offsets.size - 1};
    const auto make_one = [part_edges](const std::shared_ptr<Workers>& pool) {
      if constexpr (std::is_constructible_v<Impl<P, N>, std::shared_ptr<Workers>, int64_t>)
        return std::make_unique<Impl<P, N>>(pool, part_edges);
      else  // it shares out rows, not edges
        return std::make_unique<Impl<P, N>>(pool);
    };
    impl_ = std::make_unique<Group<P, N>>(graph, options, num_threads, make_one);
  }

  template <typename P, typename N>
  std::vector<std::unique_ptr<Sampled>> sample_as(Group<P, N>& impl, const std::vector<py::object>& seeds,
                                                  const std::vector<BatchKeys>& keys) {
    impl.expect(seeds.size());  // threads come while the seeds are looked at
    std::vector<Request<N>> group;
    std::vector<std::unique_ptr<Sampled>> sampled;
    for (size_t i = 0; i < seeds.size(); ++i) {
      const auto starts = view<const N>(seeds[i], "seeds");
      group.push_back({starts.data, starts.size, keys[i]});
      sampled.push_back(std::make_unique<Sampled>());
    }
    const Unlocked unlocked;
    read_.require_whole();  // lists whose bounds are zeros must not be read
    const auto errors = impl.sample(group, [&](size_t i, const SampleSizes& sizes) {
      return sampled[i]->template place<P, N>(sizes, edge_ids_, pool_);
    });
    read_.require_whole();
    for (size_t i = 0; i < errors.size(); ++i) sampled[i]->error = errors[i];
    return sampled;
  }

  const Types types_;
  const py::object indptr_, indices_, picks_;  // the core holds addresses of theirs
  ListBytes read_;
  const bool edge_ids_;
  std::shared_ptr<BufferPool> pool_;
  std::variant<std::unique_ptr<Group<int32_t, int32_t>>, std::unique_ptr<Group<int64_t, int32_t>>,
               std::unique_ptr<Group<int64_t, int64_t>>>
      impl_;
};

// Of HeteroLists. `types`: of the vertices, see Types.
template <template <typename, typename> class Impl>
void bind_hetero_class(py::module_& m, const char* name) {
  using Class = AnySampler<Impl>;
  py::class_<Class>(m, name)
      .def(py::init([](py::object indptr, py::object indices, std::vector<std::vector<int64_t>> fanouts,
                       const std::vector<Types::Entry>& types, bool once, bool replace, bool edge_ids,
                       int64_t num_threads, int64_t part_edges, py::object picks, bool in_file, bool copies) {
             Types checked(types, std::move(fanouts), once);
             std::vector<int64_t> widest = checked.widest();
             return std::make_unique<Class>(std::move(indptr), std::move(indices), std::move(widest), replace,
                                            edge_ids, num_threads, part_edges, std::move(picks), in_file,
                                            std::move(checked), copies);
           }),
           py::arg("indptr"), py::arg("indices"), py::arg("fanouts"), py::arg("types"), py::arg("once"),
           py::arg("replace"), py::arg("edge_ids"), py::arg("num_threads"), py::arg("part_edges"),
           py::arg("picks") = py::none(), py::arg("in_file") = false, py::arg("copies") = false)
      .def("sample", &Class::sample, py::arg("seeds"), py::arg("keys"),
           py::arg("next_keys") = std::vector<uint64_t>{}, py::arg("phases") = std::vector<uint32_t>{});
}

template <template <typename, typename> class Impl>
void bind_class(py::module_& m, const char* name) {
  using Class = AnySampler<Impl>;
  py::class_<Class>(m, name)
      .def(py::init<py::object, py::object, std::vector<int64_t>, bool, bool, int64_t, int64_t, py::object,
                    bool>(),
           py::arg("indptr"), py::arg("indices"), py::arg("fanouts"), py::arg("replace"), py::arg("edge_ids"),
           py::arg("num_threads"), py::arg("part_edges"), py::arg("picks") = py::none(),
           py::arg("in_file") = false)
      .def("sample", &Class::sample, py::arg("seeds"), py::arg("keys"),
           py::arg("next_keys") = std::vector<uint64_t>{}, py::arg("phases") = std::vector<uint32_t>{});
}

}  // namespace

void bind_sampler(py::module_& m) {
  m.attr("max_threads") = kMaxThreads;
  m.def(
      "batch_key",
      [](uint64_t seed, uint64_t epoch, uint64_t batch) { return batch_key(seed, epoch, batch); },
      py::arg("seed"), py::arg("epoch"), py::arg("batch"));
  py::class_<SampledBuffer, std::shared_ptr<SampledBuffer>>(m, "SampledBuffer", py::buffer_protocol())
      .def_buffer([](const SampledBuffer& buffer) { return buffer.info(); });
  py::class_<Sampled>(m, "Sampled").def("take", &Sampled::take);
  bind_class<HopwiseSampler>(m, "HopwiseSampler");
  bind_class<FusedSampler>(m, "FusedSampler");
  bind_hetero_class<HeteroHopwiseSampler>(m, "HeteroHopwiseSampler");
  bind_hetero_class<HeteroFusedSampler>(m, "HeteroFusedSampler");
}

}  // namespace loader
