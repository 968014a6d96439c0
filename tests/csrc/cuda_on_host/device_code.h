// CUDA's device code as a program of the host, so that kernels can be tested without a GPU; beside it
// stand-ins for the core's own headers that launch them. Says nothing of speed, and nothing of races between
// warps that a GPU could show.
//
// A thread is a fiber, a block an operating system thread that lets its fibers run in turns: a fiber gives
// way where it waits for its warp or its block, and has no turn until all are there. Threads of a warp run
// one after the other between two collectives, not in step, which is what the programming model promises.
// Shared memory is thread_local.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "context.h"

#define __host__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static thread_local
#define __global__ static
#define __grid_constant__
#define __launch_bounds__(...)

namespace on_host {

struct Dim {
  unsigned x = 0;
};

// Where `count` fibers meet.
struct Meeting {
  int count = 0, arrived = 0;
  unsigned generation = 0;
};

struct Warp {
  Meeting meeting;
  uint64_t values[32];
};

struct Block {
  Meeting meeting;
  bool vote = false;
  std::vector<Warp> warps;
  std::vector<unsigned char>
      shared;  // a piece of the heap, as large as was asked for: a sanitizer sees its ends
  Context scheduler;
};

// Memory for stacks, kept from launch to launch: to allocate it took a third of a test's time.
class Stacks {
 public:
  static constexpr size_t kBytes = 128 * 1024;
  using Stack = std::unique_ptr<char[]>;

  Stack take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return Stack(new char[kBytes]);
    Stack stack = std::move(free_.back());
    free_.pop_back();
    return stack;
  }
  void give_back(Stack stack) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(stack));
  }

 private:
  std::mutex mutex_;
  std::vector<Stack> free_;
};

inline Stacks stacks;

struct Fiber {
  Context context;
  Stacks::Stack stack;
  Dim thread, block, size, grid;
  Warp* warp = nullptr;
  Block* home = nullptr;
  bool done = false;
  const Meeting* awaited = nullptr;  // it has no turn until this has another generation
  unsigned generation = 0;
  unsigned barriers = 0;  // of several blocks, passed so far

  bool waits() const { return awaited && awaited->generation == generation; }

  void prepare(void (*entry)()) {
    stack = stacks.take();
    context.prepare(stack.get(), Stacks::kBytes, entry);
  }
};

inline thread_local Fiber* running = nullptr;

inline void give_way() { running->context.leave(running->home->scheduler); }
inline void go_on(Fiber& fiber) { fiber.home->scheduler.leave(fiber.context); }
inline void end(Fiber& fiber) { fiber.context.leave(fiber.home->scheduler); }  // and is not gone on with

inline void meet(Meeting& meeting) {
  const unsigned generation = meeting.generation;
  if (++meeting.arrived == meeting.count) {
    meeting.arrived = 0;
    ++meeting.generation;
    return;
  }
  Fiber& self = *running;
  self.awaited = &meeting;
  self.generation = generation;
  give_way();
  self.awaited = nullptr;
}

// For a processor that other blocks have use for: now and then longer than a turn.
inline void wait_a_little() {
  static thread_local unsigned waits = 0;
  if (++waits % 4 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  else
    std::this_thread::yield();
}

inline unsigned lane() { return running->thread.x % 32; }

// Who writes and reads words of which a warp reads only those that it wrote, unless a barrier of the blocks,
// or the end of the launch, is between.
class OwnWords {
 public:
  void forget() { words_.clear(); }

  void note(const void* at, bool writes) {
    const Fiber& self = *running;
    const uint64_t warp = uint64_t{self.block.x} << 32 | self.thread.x / 32;
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& [writer, reader] = words_[at];
    if (conflicts(writer, warp, self.barriers) || (writes && conflicts(reader, warp, self.barriers))) {
      std::fprintf(
          stderr,
          "FAILED: a warp and another one use a row, one of them writes it, and no barrier is between\n");
      std::exit(1);
    }
    (writes ? writer : reader) = {true, warp, self.barriers};
  }

 private:
  struct Use {
    bool was = false;
    uint64_t warp = 0;
    unsigned barriers = 0;
  };
  static bool conflicts(const Use& use, uint64_t warp, unsigned barriers) {
    return use.was && use.warp != warp && use.barriers >= barriers;
  }

  std::mutex mutex_;
  std::unordered_map<const void*, std::pair<Use, Use>> words_;
};

inline OwnWords own_words;

// Every lane's value to all lanes: `read` picks what a lane gets.
template <typename T, typename Read>
T exchange(T value, const Read& read) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  Warp& warp = *running->warp;
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  warp.values[lane()] = word;
  meet(warp.meeting);
  word = read(warp.values);
  meet(warp.meeting);
  T result;
  std::memcpy(&result, &word, sizeof(T));
  return result;
}

// Runs `kernel()` as every thread of a grid, with `shared` bytes of shared memory for each block.
template <typename Kernel>
void run_grid(unsigned blocks, unsigned threads, size_t shared, const Kernel& kernel) {
  own_words.forget();
  std::vector<std::thread> homes;
  for (unsigned b = 0; b < blocks; ++b) {
    homes.emplace_back([=, &kernel] {
      Block home;
      home.meeting.count = static_cast<int>(threads);
      home.warps.resize(threads / 32);
      home.shared.assign(shared, 0x5A);
      std::vector<Fiber> fibers(threads);
      static thread_local const Kernel* code = nullptr;
      code = &kernel;
      for (unsigned t = 0; t < threads; ++t) {
        Fiber& fiber = fibers[t];
        fiber.thread.x = t;
        fiber.block.x = b;
        fiber.size.x = threads;
        fiber.grid.x = blocks;
        fiber.home = &home;
        fiber.warp = &home.warps[t / 32];
        fiber.warp->meeting.count = 32;
        fiber.prepare(+[] {
          (*code)();
          running->done = true;
          end(*running);
        });
      }
      for (unsigned left = threads; left > 0;) {
        for (Fiber& fiber : fibers) {
          if (fiber.done || fiber.waits()) continue;
          running = &fiber;
          go_on(fiber);
          left -= fiber.done;
        }
      }
      for (Fiber& fiber : fibers) stacks.give_back(std::move(fiber.stack));
    });
  }
  for (std::thread& home : homes) home.join();
}

// The GPUs that there are, and what becomes of launches.
struct Machine {
  int device = 0;                           // the current one
  std::vector<int> multiprocessors{64, 2};  // of each device
  int launches_until_refused = -1;          // one is refused when this is 0; negative: none is
  int launches = 0;                         // so far
};

inline Machine machine;

// Calls a kernel as a grid, with arguments by their addresses.
template <typename... Parameters, size_t... I>
void run(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, size_t shared, void** arguments,
         std::index_sequence<I...>) {
  run_grid(blocks, threads, shared, [&] { kernel(*static_cast<Parameters*>(arguments[I])...); });
}

}  // namespace on_host

inline unsigned char* launch_memory() { return on_host::running->home->shared.data(); }

#define threadIdx (on_host::running->thread)
#define blockIdx (on_host::running->block)
#define blockDim (on_host::running->size)
#define gridDim (on_host::running->grid)

inline void __syncthreads() { on_host::meet(on_host::running->home->meeting); }
inline int __syncthreads_or(int predicate) {
  bool& vote = on_host::running->home->vote;
  vote |= predicate != 0;
  __syncthreads();
  const bool any = vote;
  __syncthreads();  // all have read it
  vote = false;
  __syncthreads();
  return any;
}
inline void __syncwarp() { on_host::meet(on_host::running->warp->meeting); }
// The block with number 1 is late now and then: others are past a barrier long before it. Of a launch's
// fences it is another one each time, before a barrier or behind one: to sleep at each took four fifths of a
// test's time.
inline void __threadfence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  static std::atomic<unsigned> fences{0};  // of all launches
  if (blockIdx.x == 1 && ++fences % 13 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
inline void __threadfence_system() { __threadfence(); }
// What it waits for comes from another block.
inline void __nanosleep(unsigned) {
  on_host::wait_a_little();
  on_host::give_way();
}
#define LOADER_POLL on_host::wait_a_little
#define LOADER_PAST_BARRIER() ++on_host::running->barriers
#define LOADER_WRITES_ROW(at) on_host::own_words.note(at, true)
#define LOADER_READS_ROW(at) on_host::own_words.note(at, false)

template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return on_host::exchange(value, [&](const uint64_t* values) { return values[from & 31]; });
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned by) {
  const unsigned lane = on_host::lane();
  return on_host::exchange(value,
                           [&](const uint64_t* values) { return values[lane < by ? lane : lane - by]; });
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int by) {
  return on_host::exchange(value, [&](const uint64_t* values) { return values[on_host::lane() ^ by]; });
}
inline unsigned __ballot_sync(unsigned, int64_t predicate) {
  return on_host::exchange<unsigned>(predicate != 0, [](const uint64_t* values) {
    uint64_t votes = 0;
    for (int i = 0; i < 32; ++i) votes |= values[i] << i;
    return votes;
  });
}
inline unsigned __match_any_sync(unsigned, unsigned value) {
  return on_host::exchange(value, [value](const uint64_t* values) {
    unsigned equal = 0;
    for (int i = 0; i < 32; ++i) equal |= unsigned{values[i] == value} << i;
    return equal;
  });
}
inline bool __any_sync(unsigned mask, int64_t predicate) { return __ballot_sync(mask, predicate) != 0; }

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
template <typename T>
T __ldg(const T* at) {
  return *at;
}
template <typename T>
T __ldcg(const T* at) {
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}
template <typename T>
T atomicAdd(T* at, T value) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
// As csrc/gpu/grid_barrier.cuh has them.
inline unsigned add_and_order(unsigned* at, unsigned x) {
  __threadfence();
  return atomicAdd(at, x);
}
inline unsigned read_anew(const unsigned* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
inline unsigned read_and_order(const unsigned* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
template <typename T>
T atomicOr(T* at, T value) {
  return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST);
}
template <typename T>
T atomicMin(T* at, T value) {
  T known = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  while (value < known &&
         !__atomic_compare_exchange_n(at, &known, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return known;
}
template <typename T>
T atomicMax(T* at, T value) {
  T known = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  while (value > known &&
         !__atomic_compare_exchange_n(at, &known, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return known;
}
template <typename T>
T atomicCAS(T* at, T expected, T desired) {
  __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

using std::max;
using std::min;
