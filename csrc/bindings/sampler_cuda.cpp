// Exports the GPU sampler: checks what Python hands over, launches, waits for the sizes without the GIL.
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "bindings/views.h"
#include "sampler/cuda/sampler.h"

namespace loader {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + " failed: " + cudaGetErrorString(error));
}

// Waits until the kernel has written `sequence`; the blocks may still be under way on the stream.
void wait(const SampleHeader* header, uint64_t sequence, cudaStream_t stream) {
  const volatile uint64_t* const written = &header->sequence;
  for (uint64_t spins = 0; *written != sequence; ++spins) {
    if (spins % 4096 != 4095) continue;
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaErrorNotReady) {
      if (spins > (uint64_t{1} << 22)) std::this_thread::sleep_for(std::chrono::microseconds(50));
      continue;
    }
    check(state, "sampling on the GPU");
    if (*written != sequence) throw std::runtime_error("the sampling kernel ended without a result");
  }
  std::atomic_thread_fence(std::memory_order_acquire);
}

// Entries of the arrays that a plan needs, for each mini-batch of a launch.
struct WorkspaceSizes {
  int64_t rows = 0, tasks = 0, picks_at = 0, picks = 0;
  int64_t table = 0, found = 0;  // of a hash set: its places, and the vertices that it has room for
};

// The sampler of one graph on one device: raw addresses of tensors that Python owns, which outlive it.
template <typename P, typename N>
class Engine {
 public:
  // `headers`: `num_headers` of pinned host memory, so many mini-batches may be begun and not finished.
  Engine(uintptr_t graph_indptr, uintptr_t graph_indices, int64_t num_nodes, uintptr_t totals,
         uintptr_t state, uintptr_t headers, uint64_t num_headers)
      : headers_(reinterpret_cast<SampleHeader*>(headers)), num_headers_(num_headers) {
    args_.graph_indptr = reinterpret_cast<const P*>(graph_indptr);
    args_.graph_indices = reinterpret_cast<const N*>(graph_indices);
    args_.num_nodes = num_nodes;
    args_.hash.shift = range_shift(num_nodes);
    args_.totals = reinterpret_cast<uint32_t*>(totals);
    args_.state = reinterpret_cast<SampleState*>(state);
    int device = 0, shared = 0;
    check(cudaGetDevice(&device), "asking for the current GPU");
    check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "asking for a GPU's shared memory");
    args_.shared_bytes = shared;
    most_.tasks = -1;  // even an empty mini-batch is larger than none
  }

  // What the following mini-batches are, of at most `num_seeds` seeds. Outputs lie in two places, see `add`:
  // vertices (`nodes` at 0, each hop's `indices`) and edges (each hop's `indptr`, then its edge ids where
  // those are wanted), at the given offsets, in elements, hop order. `tasks`: slots of the queue. Returns the
  // sizes of the arrays that `use` and `use_hash` take: (rows, tasks, picks_at, picks, table, found).
  py::tuple plan(const std::vector<int64_t>& fanouts, bool replace, bool pad,
                 const std::vector<int64_t>& frontier_capacity, const std::vector<int64_t>& edge_capacity,
                 const std::vector<int64_t>& indices_at, const std::vector<int64_t>& indptr_at,
                 const std::vector<int64_t>& edge_ids_at, int64_t num_seeds, int64_t tasks, int schedule,
                 int vertex_set) {
    const size_t hops = fanouts.size();
    if (hops < 1 || hops > kMaxHops || frontier_capacity.size() != hops + 1 || edge_capacity.size() != hops ||
        indices_at.size() != hops || indptr_at.size() != hops ||
        (!edge_ids_at.empty() && edge_ids_at.size() != hops))
      throw py::value_error("one offset and one capacity is needed for each of 1 to " +
                            std::to_string(kMaxHops) + " hops");
    for (size_t h = 0; h < hops; ++h) {
      if (frontier_capacity[h] > frontier_capacity[h + 1])
        throw py::value_error("frontier_capacity must not decrease: one array holds all frontiers");
      if (indices_at[h] * sizeof(N) % 16 != 0) throw py::value_error("indices must be aligned to 16 bytes");
    }
    if (static_cast<VertexSet>(vertex_set) == VertexSet::kBitmap && frontier_capacity[hops] > UINT32_MAX)
      throw py::value_error("a mini-batch of up to " + std::to_string(frontier_capacity[hops]) +
                            " vertices; with bitmaps there can be 2^32 - 1");
    args_.vertex_set = static_cast<VertexSet>(vertex_set);
    args_.hops = static_cast<int>(hops);
    args_.replace = replace;
    args_.pad = pad;
    args_.edge_ids = !edge_ids_at.empty();
    for (size_t h = 0; h < hops; ++h) {
      args_.fanouts[h] = static_cast<int>(fanouts[h]);
      args_.edge_capacity[h] = edge_capacity[h];
      args_.indices_at[h] = indices_at[h];
      args_.indptr_at[h] = indptr_at[h];
      args_.edge_ids_at[h] = args_.edge_ids ? edge_ids_at[h] : 0;
    }
    for (size_t h = 0; h <= hops; ++h) args_.frontier_capacity[h] = frontier_capacity[h];
    if (const int most = most_fanout(args_.shared_bytes); widest_fanout(args_.fanouts, args_.hops) > most)
      throw py::value_error(
          "fanout " + std::to_string(widest_fanout(args_.fanouts, args_.hops)) +
          " is too much for this GPU, whose thread blocks have " + std::to_string(args_.shared_bytes / 1024) +
          " KiB of shared memory; give at most " + std::to_string(most) + ", or -1 for all neighbours");
    const WorkspaceSizes sizes = workspace_sizes(num_seeds, tasks, static_cast<Schedule>(schedule));
    return py::make_tuple(sizes.rows, sizes.tasks, sizes.picks_at, sizes.picks, sizes.table, sizes.found);
  }

  // The arrays of the plan; null where the size is 0. `positions` has as many entries as `picks`, if edge ids
  // are wanted.
  void use(uintptr_t row_begin, uintptr_t row_degree, uintptr_t list, int64_t rows, uintptr_t tasks,
           int64_t num_tasks, uintptr_t picks_at, uintptr_t picks, uintptr_t positions, int64_t num_picks) {
    args_.row_begin = reinterpret_cast<P*>(row_begin);
    args_.row_degree = reinterpret_cast<uint32_t*>(row_degree);
    args_.list = reinterpret_cast<N*>(list);
    args_.rows_capacity = rows;
    args_.tasks = reinterpret_cast<uint64_t*>(tasks);
    args_.tasks_capacity = num_tasks;
    args_.picks_at = reinterpret_cast<uint32_t*>(picks_at);
    args_.picks = reinterpret_cast<N*>(picks);
    args_.positions = reinterpret_cast<P*>(positions);
    args_.picks_capacity = num_picks;
  }

  // The sets of a plan with bitmaps, and the local ids by vertex.
  void use_bitmaps(uintptr_t bitmaps, int64_t stride, uintptr_t local) {
    args_.bitmaps = reinterpret_cast<uint32_t*>(bitmaps);
    args_.bitmaps_stride = stride;
    args_.local = reinterpret_cast<N*>(local);
    args_.local_stride = args_.num_nodes;
  }

  // The set of a plan with a hash set, `size` places with the local ids by place, room for `capacity`
  // vertices.
  void use_hash(uintptr_t keys, uintptr_t local, int64_t size, uintptr_t found, uintptr_t places,
                uintptr_t offsets, uintptr_t grouped, uintptr_t grouped_place, int64_t capacity,
                uintptr_t counts, uintptr_t begins) {
    if (size < 2 * capacity || (size & (size - 1)) != 0 || capacity % 32 != 0)
      throw py::value_error("a table of " + std::to_string(size) + " places for " + std::to_string(capacity) +
                            " vertices; it must be a power of two, and at least twice a multiple of 32");
    HashArgs<N>& hash = args_.hash;
    hash.keys = reinterpret_cast<typename HashArgs<N>::Key*>(keys);
    hash.size = size;
    hash.capacity = capacity;
    hash.found = reinterpret_cast<N*>(found);
    hash.places = reinterpret_cast<uint32_t*>(places);
    hash.offsets = reinterpret_cast<uint32_t*>(offsets);
    hash.grouped = reinterpret_cast<N*>(grouped);
    hash.grouped_place = reinterpret_cast<uint32_t*>(grouped_place);
    hash.counts = reinterpret_cast<uint32_t*>(counts);
    hash.begins = reinterpret_cast<uint32_t*>(begins);
    args_.local = reinterpret_cast<N*>(local);
    args_.local_stride = size;
  }

  // Adds a mini-batch to the next launch; returns the number by which `finish` knows it.
  uint64_t add(uintptr_t seeds, int64_t num_seeds, uint64_t key, uintptr_t vertices, uintptr_t edges,
               uintptr_t sizes) {
    if (args_.num_batches == kMaxBatchesPerLaunch) throw std::runtime_error("the launch is full");
    const uint64_t sequence = ++sequence_;
    args_.batches[args_.num_batches++] = {reinterpret_cast<const void*>(seeds),
                                          num_seeds,
                                          key,
                                          reinterpret_cast<void*>(vertices),
                                          reinterpret_cast<void*>(edges),
                                          reinterpret_cast<int64_t*>(sizes),
                                          header_of(sequence),
                                          sequence};
    return sequence;
  }

  // Launches what was added, by the last `plan`. Returns the number of kernels.
  int launch(int schedule, int blocks, uintptr_t stream) {
    int launches = 0;
    const cudaError_t error = launch_sample(args_, static_cast<Schedule>(schedule), blocks, &launches,
                                            reinterpret_cast<cudaStream_t>(stream));
    args_.num_batches = 0;
    check(error, "launching the sampler");
    return launches;
  }

  // Waits for the sizes of a mini-batch: (status, detail, hops done, frontiers, edges, slots needed, whether
  // one that was finished needed more of anything than all before it).
  py::tuple finish(uint64_t sequence, size_t hops, uintptr_t stream) {
    const SampleHeader& h = *header_of(sequence);
    {
      py::gil_scoped_release release;
      wait(&h, sequence, reinterpret_cast<cudaStream_t>(stream));
    }
    return py::make_tuple(static_cast<int64_t>(h.status), h.detail, h.hops_done,
                          std::vector<int64_t>(h.frontiers, h.frontiers + hops + 1),
                          std::vector<int64_t>(h.edges, h.edges + hops), h.tasks,
                          h.status == SampleStatus::kOk && grows(h, hops));
  }

  // (status, detail) of a mini-batch that may not be done: without waiting; None where it is not.
  py::object peek(uint64_t sequence) const {
    const SampleHeader& h = *header_of(sequence);
    if (*static_cast<const volatile uint64_t*>(&h.sequence) != sequence) return py::none();
    std::atomic_thread_fence(std::memory_order_acquire);
    return py::make_tuple(static_cast<int64_t>(h.status), h.detail);
  }

 private:
  // Remembers the sizes of a mini-batch where they are the largest so far. Here, because Python takes one to
  // three microseconds to compare them.
  bool grows(const SampleHeader& h, size_t hops) {
    bool grown = false;
    const auto see = [&grown](int64_t& most, int64_t size) {
      grown |= size > most;
      most = std::max(most, size);
    };
    for (size_t i = 0; i <= hops; ++i) see(most_.frontiers[i], h.frontiers[i]);
    for (size_t i = 0; i < hops; ++i) see(most_.edges[i], h.edges[i]);
    see(most_.tasks, h.tasks);
    return grown;
  }

  SampleHeader* header_of(uint64_t sequence) const { return headers_ + sequence % num_headers_; }

  WorkspaceSizes workspace_sizes(int64_t num_seeds, int64_t tasks, Schedule schedule) const {
    const int hops = args_.hops, width = kernel_width<N>(args_.fanouts, hops, args_.shared_bytes);
    WorkspaceSizes sizes;
    // The list may hold seeds once more, see Cooperative::push.
    sizes.rows = args_.frontier_capacity[hops - 1] + num_seeds;
    const auto whole_groups = [](int64_t rows) { return (rows + 31) / 32 * 32; };
    if (args_.vertex_set == VertexSet::kHash) {
      // At least one group: without seeds the kernels still look at the ranges' counts.
      sizes.found = std::max<int64_t>(whole_groups(args_.frontier_capacity[hops]), 32);
      sizes.table = table_size(sizes.found);
      if (sizes.table > kMaxTable)
        throw std::overflow_error("a mini-batch of up to " + std::to_string(sizes.found) +
                                  " vertices is more than a hash set's 2^30; use vertex_set='bitmap'");
      return sizes;
    }
    if (schedule == Schedule::kStatic || schedule == Schedule::kPersistent) {
      sizes.tasks = tasks;
      const int64_t tickets = num_seeds * hops + tasks;
      if (width == kWide) {
        sizes.picks_at = tickets;
        // The tasks of a seed may be made once more, see queue.cuh.
        for (int h = 0; h < hops; ++h) sizes.picks += 2 * args_.edge_capacity[h];
        if (sizes.picks > int64_t{UINT32_MAX})
          throw std::overflow_error("a mini-batch of up to " + std::to_string(sizes.picks / 2) +
                                    " edges is more than a queue's 2^31; use schedule='cooperative'");
      } else {
        sizes.picks = whole_groups(tickets) * queue_width(width);
      }
    } else if (schedule == Schedule::kCooperative && width != kWide) {
      for (int h = 0; h < hops; ++h)
        sizes.picks += whole_groups(std::min(sizes.rows, args_.frontier_capacity[h] + num_seeds)) *
                       pick_width(args_.fanouts[h]);
    }
    return sizes;
  }

  SampleArgs<P, N> args_{};
  SampleHeader* headers_;
  uint64_t num_headers_;
  uint64_t sequence_ = 0;
  SampleHeader most_{};
};

template <typename P, typename N>
void bind_engine(py::module_& m, const char* name) {
  using Class = Engine<P, N>;
  py::class_<Class>(m, name)
      .def(py::init<uintptr_t, uintptr_t, int64_t, uintptr_t, uintptr_t, uintptr_t, uint64_t>())
      .def("plan", &Class::plan)
      .def("use", &Class::use)
      .def("use_bitmaps", &Class::use_bitmaps)
      .def("use_hash", &Class::use_hash)
      .def("add", &Class::add)
      .def("launch", &Class::launch)
      .def("finish", &Class::finish)
      .def("peek", &Class::peek);
}

}  // namespace

void bind_sampler_cuda(py::module_& m) {
  bind_engine<int32_t, int32_t>(m, "CudaSampler_i32_i32");
  bind_engine<int64_t, int32_t>(m, "CudaSampler_i64_i32");
  bind_engine<int64_t, int64_t>(m, "CudaSampler_i64_i64");
  m.def("cuda_bitmap_entries", &bitmap_entries);
  m.attr("cuda_ranges") = kRanges;
  m.attr("cuda_range_begins") = range_begins();
  m.attr("cuda_workspace_totals") = workspace_totals();
  m.attr("cuda_state_bytes") = sizeof(SampleState);
  m.attr("cuda_header_bytes") = sizeof(SampleHeader);
  m.attr("cuda_max_batches_per_launch") = kMaxBatchesPerLaunch;
  m.attr("cuda_max_task_vertices") = kMaxTaskVertices;
  m.attr("cuda_part_edges") = kPartEdges;
}

}  // namespace loader
