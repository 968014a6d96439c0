// Exports the GPU sampler: checks what Python hands over, launches, waits for the sizes without the GIL.
#include <pybind11/stl.h>

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

// The workspace of one graph on one device: raw addresses of tensors that Python owns.
template <typename P, typename N>
class Engine {
 public:
  Engine(uintptr_t graph_indptr, uintptr_t graph_indices, int64_t num_nodes, uintptr_t seen, uintptr_t fresh,
         uintptr_t local, uintptr_t totals, uintptr_t header, uintptr_t host_header) {
    args_.graph_indptr = reinterpret_cast<const P*>(graph_indptr);
    args_.graph_indices = reinterpret_cast<const N*>(graph_indices);
    args_.num_nodes = num_nodes;
    args_.seen = reinterpret_cast<uint32_t*>(seen);
    args_.fresh = reinterpret_cast<uint32_t*>(fresh);
    args_.local = reinterpret_cast<N*>(local);
    args_.totals = reinterpret_cast<int64_t*>(totals);
    args_.header = reinterpret_cast<SampleHeader*>(header);
    args_.host_header = reinterpret_cast<SampleHeader*>(host_header);
  }

  // What the following mini-batches are. Outputs lie in two buffers: vertices (`nodes` at 0, each hop's
  // `indices`) and edges (each hop's `indptr`, then its edge ids where those are wanted), at the given
  // offsets, in elements, hop order.
  void plan(const std::vector<int64_t>& fanouts, bool replace, const std::vector<int64_t>& frontier_capacity,
            const std::vector<int64_t>& edge_capacity, const std::vector<int64_t>& indices_at,
            const std::vector<int64_t>& indptr_at, const std::vector<int64_t>& edge_ids_at,
            uintptr_t row_begin, uintptr_t row_degree) {
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
    args_.hops = static_cast<int>(hops);
    args_.replace = replace;
    args_.row_begin = reinterpret_cast<P*>(row_begin);
    args_.row_degree = reinterpret_cast<uint32_t*>(row_degree);
    for (size_t h = 0; h < hops; ++h) {
      args_.fanouts[h] = static_cast<int>(fanouts[h]);
      args_.edge_capacity[h] = edge_capacity[h];
    }
    for (size_t h = 0; h <= hops; ++h) args_.frontier_capacity[h] = frontier_capacity[h];
    indices_at_ = indices_at;
    indptr_at_ = indptr_at;
    edge_ids_at_ = edge_ids_at;
  }

  // Samples by the last `plan`. Returns (status, detail, hops done, frontiers, edges, kernels launched).
  py::tuple sample(uintptr_t seeds, int64_t num_seeds, uint64_t key, uintptr_t vertices, uintptr_t edges,
                   int schedule, int blocks_per_sm, uintptr_t stream_address) {
    const auto hops = static_cast<size_t>(args_.hops);
    if (hops == 0) throw std::runtime_error("sample was called before plan");
    args_.seeds = reinterpret_cast<const N*>(seeds);
    args_.num_seeds = num_seeds;
    args_.key = key;
    args_.nodes = reinterpret_cast<N*>(vertices);
    for (size_t h = 0; h < hops; ++h) {
      args_.indices[h] = reinterpret_cast<N*>(vertices) + indices_at_[h];
      args_.indptr[h] = reinterpret_cast<P*>(edges) + indptr_at_[h];
      args_.edge_ids[h] = edge_ids_at_.empty() ? nullptr : reinterpret_cast<P*>(edges) + edge_ids_at_[h];
    }
    ++args_.sequence;
    const auto stream = reinterpret_cast<cudaStream_t>(stream_address);
    int launches = 0;
    {
      py::gil_scoped_release release;
      check(launch_sample(args_, static_cast<Schedule>(schedule), blocks_per_sm, &launches, stream),
            "launching the sampler");
      wait(args_.host_header, args_.sequence, stream);
    }
    const SampleHeader& h = *args_.host_header;
    return py::make_tuple(static_cast<int64_t>(h.status), h.detail, h.hops_done,
                          std::vector<int64_t>(h.frontiers, h.frontiers + hops + 1),
                          std::vector<int64_t>(h.edges, h.edges + hops), launches);
  }

 private:
  SampleArgs<P, N> args_{};
  std::vector<int64_t> indices_at_, indptr_at_, edge_ids_at_;
};

template <typename P, typename N>
void bind_engine(py::module_& m, const char* name) {
  using Class = Engine<P, N>;
  py::class_<Class>(m, name)
      .def(py::init<uintptr_t, uintptr_t, int64_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                    uintptr_t>(),
           py::arg("graph_indptr"), py::arg("graph_indices"), py::arg("num_nodes"), py::arg("seen"),
           py::arg("fresh"), py::arg("local"), py::arg("totals"), py::arg("header"), py::arg("host_header"))
      .def("plan", &Class::plan)
      .def("sample", &Class::sample);
}

}  // namespace

void bind_sampler_cuda(py::module_& m) {
  bind_engine<int32_t, int32_t>(m, "CudaSampler_i32_i32");
  bind_engine<int64_t, int32_t>(m, "CudaSampler_i64_i32");
  bind_engine<int64_t, int64_t>(m, "CudaSampler_i64_i64");
  m.attr("cuda_workspace_totals") = workspace_totals();
  m.attr("cuda_header_bytes") = sizeof(SampleHeader);
}

}  // namespace loader
