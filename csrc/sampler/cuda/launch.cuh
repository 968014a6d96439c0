// The kernels of all schedules and their launches, for one pair of types.
#pragma once

#include <algorithm>

#include "sampler/cuda/run.cuh"
#include "sampler/cuda/sampler.h"

namespace loader {
namespace {

// One block of 16 warps a multiprocessor, with registers enough that nothing is spilled: a thread has a row's
// loads in flight at once, so more warps bring no more, and fewer blocks meet faster at the grid's barrier.
constexpr int kBlocksPerMultiprocessor = 1;
static_assert(kOrderBytes <= 48 * 1024,
              "more must be asked for, see cudaFuncAttributeMaxDynamicSharedMemorySize");

#ifdef __CUDACC__
// The shared memory that a launch asked for. (Where kernels run on the host, it comes from there.)
__device__ __forceinline__ unsigned char* launch_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return memory;
}
#endif

template <int Widest, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    cooperative_kernel(const __grid_constant__ Args args) {
  cooperative_block<Widest>(args, launch_memory());
}

template <int Widest, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    hashed_kernel(const __grid_constant__ Args args) {
  hashed_block<Widest>(args, launch_memory());
}

template <typename Phases, typename Args>
__global__ void __launch_bounds__(kBlock) start_kernel(const __grid_constant__ Args args) {
  start_block<Phases>(args);
}

template <int Widest, typename Phases, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    pick_kernel(const __grid_constant__ Args args, int hop) {
  pick_block<Widest, Phases>(args, hop, launch_memory());
}

template <typename Phases, typename Args>
__global__ void __launch_bounds__(kBlock) count_kernel(const __grid_constant__ Args args, int hop) {
  count_block<Phases>(args, hop);
}

template <typename Phases, typename Args>
__global__ void __launch_bounds__(kBlock) assign_kernel(const __grid_constant__ Args args, int hop) {
  assign_block<Phases>(args, hop);
}

template <typename Phases, typename Args>
__global__ void __launch_bounds__(kBlock) finish_kernel(const __grid_constant__ Args args) {
  finish_block<Phases>(args);
}

template <typename Args>
__global__ void __launch_bounds__(kBlock) group_kernel(const __grid_constant__ Args args, int hop) {
  group_block(args, hop, launch_memory());
}

template <typename Args>
__global__ void __launch_bounds__(kBlock) rank_kernel(const __grid_constant__ Args args, int hop) {
  rank_block(args, hop, launch_memory());
}

template <int Widest, bool Shared, typename Args>
__global__ void __launch_bounds__(kBlock, kBlocksPerMultiprocessor)
    queue_kernel(const __grid_constant__ Args args) {
  queue_block<Widest, Shared>(args, launch_memory());
}

template <int Widest, typename Args>
__global__ void __launch_bounds__(kBlock) queue_count_kernel(const __grid_constant__ Args args) {
  queue_count_block<Widest>(args);
}

template <int Widest, typename Args>
__global__ void __launch_bounds__(kBlock) queue_assign_kernel(const __grid_constant__ Args args) {
  queue_assign_block<Widest>(args);
}

template <int Widest, typename Args>
__global__ void __launch_bounds__(kBlock) queue_write_kernel(const __grid_constant__ Args args) {
  queue_write_block<Widest>(args);
}

constexpr int kMaxDevices = 64;

// What is known of a kernel on a device: its blocks that are resident at once, with so much shared memory
// each.
struct Known {
  int blocks = 0;
  size_t shared = 0;
};

// Blocks of `kernel` that are resident at once on the current device. Asked for once a device, and once more
// where they need more memory than before: a launch must not wait for the driver.
template <typename Kernel>
cudaError_t resident_blocks(Kernel* kernel, size_t shared, Known (&known)[kMaxDevices], int& blocks) {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  if (device >= kMaxDevices) return cudaErrorInvalidDevice;
  if (known[device].blocks == 0 || shared > known[device].shared) {
    int multiprocessors = 0, fit = 0;
    cudaFuncAttributes attributes;
    error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) return error;
    if (attributes.sharedSizeBytes > kDeclaredBytes) return cudaErrorLaunchOutOfResources;
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return error;
    error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, kBlock, shared);
    if (error != cudaSuccess) return error;
    if (fit == 0) return cudaErrorLaunchOutOfResources;
    known[device] = {std::min(std::min(fit, kBlocksPerMultiprocessor) * multiprocessors, kMaxBlocks), shared};
  }
  blocks = known[device].blocks;
  return cudaSuccess;
}

// Of a multiprocessor's first-level memory, what the kernels of `launch_hopwise` ask for as shared memory,
// percent. One for all (but for picks of more than 20 a row, which need more): it is idle when that changes.
// An epoch of benchmarks/pipeline_gpu.py on an H200, eight mini-batches a launch on all multiprocessors, took
// longer than training alone by 3.5 and 5.1 % with 25, at fanouts (15, 10, 5) and (10, 10, 10); by 3.7 and
// 5.3 % with 50, 5.6 and 7.9 with 100, 3.9 and 6.4 with the driver's own choice, another for each kernel.
constexpr int kSharedPercent = 25;

// Asks for that, once a device. A hint: a kernel that needs more gets it.
template <typename... Kernels>
cudaError_t share_alike(bool (&done)[kMaxDevices], Kernels*... kernels) {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess || done[device]) return error;
  const auto ask = [&](const void* kernel) {
    if (error == cudaSuccess)
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kSharedPercent);
  };
  (ask(reinterpret_cast<const void*>(kernels)), ...);
  done[device] = error == cudaSuccess;
  return error;
}

// Blocks of a launch: those resident at once, or `wanted`, and one for each of its mini-batches at least.
template <typename Kernel>
cudaError_t choose_blocks(Kernel* kernel, size_t shared, int wanted, int batches, Known (&known)[kMaxDevices],
                          int& blocks) {
  const cudaError_t error = resident_blocks(kernel, shared, known, blocks);
  if (error == cudaSuccess && wanted > 0) blocks = std::min(blocks, wanted);
  blocks = std::max(blocks, batches);
  return error;
}

// Launches of one stream, until one of them is refused.
struct Launcher {
  int blocks;
  cudaStream_t stream;
  int launched = 0;
  cudaError_t error = cudaSuccess;

  template <typename... Parameters, typename... Arguments>
  void operator()(void (*kernel)(Parameters...), size_t shared, const Arguments&... arguments) {
    static_assert((std::is_same_v<Parameters, Arguments> && ...), "a kernel gets copies of its parameters");
    if (error != cudaSuccess) return;
    void* parameters[] = {const_cast<Arguments*>(&arguments)...};
    error = cudaLaunchKernel(kernel, dim3(blocks), dim3(kBlock), parameters, shared, stream);
    launched += error == cudaSuccess;
  }
};

// Launches `kernel` with blocks that are resident together: once, or where there are fewer such blocks than
// mini-batches, with this many mini-batches at a time. `known`: of that kernel alone.
template <typename Args>
cudaError_t launch_one(void (*kernel)(Args), size_t shared, Known (&known)[kMaxDevices], const Args& args,
                       int wanted, int* launches, cudaStream_t stream) {
  int resident = 0;
  cudaError_t error = resident_blocks(kernel, shared, known, resident);
  const auto launch = [&](const Args& some) {
    const int blocks = std::max(wanted > 0 ? std::min(resident, wanted) : resident, some.num_batches);
    void* parameters[] = {const_cast<Args*>(&some)};
    error = cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(kBlock), parameters, shared, stream);
    *launches += error == cudaSuccess;
  };
  if (error != cudaSuccess) return error;
  if (args.num_batches <= resident) {
    launch(args);
    return error;
  }
  Args some = args;
  for (int first = 0; error == cudaSuccess && first < args.num_batches; first += resident) {
    some.num_batches = std::min(resident, args.num_batches - first);
    std::copy_n(args.batches + first, some.num_batches, some.batches);
    launch(some);
  }
  return error;
}

template <int Widest, typename Args>
cudaError_t launch_cooperative(const Args& args, int wanted, int* launches, cudaStream_t stream) {
  static Known known[kMaxDevices];
  return launch_one(cooperative_kernel<Widest, Args>, stage_bytes<Widest>(args), known, args, wanted,
                    launches, stream);
}

template <int Widest, typename Args>
cudaError_t launch_hashed(const Args& args, int wanted, int* launches, cudaStream_t stream) {
  static Known known[kMaxDevices];
  return launch_one(hashed_kernel<Widest, Args>, hashed_bytes<Widest>(args), known, args, wanted, launches,
                    stream);
}

// `Phases`: HopwisePhases or HashedPhases, which orders the vertices of a hop in two launches more and knows
// the last sizes by then.
template <int Widest, typename Phases, typename Args>
cudaError_t launch_hopwise(const Args& args, int wanted, int* launches, cudaStream_t stream) {
  constexpr bool hashed = std::is_same_v<Phases, HashedPhases<Args>>;
  static Known known[kMaxDevices];
  static bool alike[kMaxDevices];
  auto* const start = start_kernel<Phases, Args>;
  auto* const pick = pick_kernel<Widest, Phases, Args>;
  auto* const count = count_kernel<Phases, Args>;
  auto* const assign = assign_kernel<Phases, Args>;
  auto* const finish = finish_kernel<Phases, Args>;
  const size_t shared = stage_bytes<Widest>(args);
  int blocks = 0;
  cudaError_t error = choose_blocks(pick, shared, wanted, args.num_batches, known, blocks);
  if (error != cudaSuccess) return error;
  if constexpr (hashed)
    error = share_alike(alike, start, pick, group_kernel<Args>, rank_kernel<Args>, count, assign, finish);
  else
    error = share_alike(alike, start, pick, count, assign, finish);
  if (error != cudaSuccess) return error;
  Launcher launch{blocks, stream};
  launch(start, 0, args);
  launch(assign, 0, args, 0);
  for (int hop = 1; hop <= args.hops; ++hop) {
    launch(pick, shared, args, hop);
    if constexpr (hashed) {
      launch(group_kernel<Args>, kOrderBytes, args, hop);
      launch(rank_kernel<Args>, kOrderBytes, args, hop);
      if (hop == args.hops) break;
    }
    launch(count, 0, args, hop);
    launch(assign, 0, args, hop);
  }
  launch(finish, 0, args);
  *launches = launch.launched;
  return launch.error;
}

template <int Widest, bool Shared, typename Args>
cudaError_t launch_queue(const Args& args, int wanted, int* launches, cudaStream_t stream) {
  static Known known[kMaxDevices];
  auto* const kernel = queue_kernel<Widest, Shared, Args>;
  const size_t shared = stage_bytes<Widest>(args);
  int blocks = 0;
  const cudaError_t error = choose_blocks(kernel, shared, wanted, args.num_batches, known, blocks);
  if (error != cudaSuccess) return error;
  Launcher launch{blocks, stream};
  launch(kernel, shared, args);
  launch(queue_count_kernel<Widest, Args>, 0, args);
  launch(queue_assign_kernel<Widest, Args>, 0, args);
  launch(queue_write_kernel<Widest, Args>, 0, args);
  *launches = launch.launched;
  return launch.error;
}

template <int Widest, typename Args>
cudaError_t launch_with_hash(const Args& args, Schedule schedule, int blocks, int* launches,
                             cudaStream_t stream) {
  if (schedule == Schedule::kCooperative) return launch_hashed<Widest>(args, blocks, launches, stream);
  if (schedule == Schedule::kHopwise)
    return launch_hopwise<Widest, HashedPhases<Args>>(args, blocks, launches, stream);
  return cudaErrorNotSupported;
}

template <int Widest, typename Args>
cudaError_t launch_as(const Args& args, Schedule schedule, int blocks, int* launches, cudaStream_t stream) {
  if (args.vertex_set == VertexSet::kHash)
    return launch_with_hash<Widest>(args, schedule, blocks, launches, stream);
  switch (schedule) {
    case Schedule::kCooperative:
      return launch_cooperative<Widest>(args, blocks, launches, stream);
    case Schedule::kHopwise:
      return launch_hopwise<Widest, HopwisePhases<Args>>(args, blocks, launches, stream);
    case Schedule::kStatic:
      return launch_queue<queue_width(Widest), false>(args, blocks, launches, stream);
    case Schedule::kPersistent:
      return launch_queue<queue_width(Widest), true>(args, blocks, launches, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename Args>
cudaError_t launch_width(const Args& args, Schedule schedule, int blocks, int* launches,
                         cudaStream_t stream) {
  const int width = kernel_width<typename Args::Vertex>(args.fanouts, args.hops, args.shared_bytes);
  if constexpr (sizeof(typename Args::Vertex) == 4) {
    if (width == 10) return launch_as<10>(args, schedule, blocks, launches, stream);
    if (width == 15) return launch_as<15>(args, schedule, blocks, launches, stream);
    if (width == 20) return launch_as<20>(args, schedule, blocks, launches, stream);
    if (width == 32) return launch_as<32>(args, schedule, blocks, launches, stream);
  }
  return launch_as<kWide>(args, schedule, blocks, launches, stream);
}

}  // namespace

template <typename Args>
cudaError_t launch_sample(const Args& args, Schedule schedule, int blocks, int* launches,
                          cudaStream_t stream) {
  if (args.num_batches < 1 || args.num_batches > kMaxBatchesPerLaunch) return cudaErrorInvalidValue;
  const bool shared = schedule == Schedule::kCooperative || schedule == Schedule::kHopwise;
  if (args.num_batches > 1 && !shared) return cudaErrorNotSupported;
  *launches = 0;
  const cudaError_t error = launch_width(args, schedule, blocks, launches, stream);
  // Whoever asks for the last error next would take this one for theirs.
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

}  // namespace loader
