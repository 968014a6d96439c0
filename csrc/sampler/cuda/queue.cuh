// One launch without any barrier: tasks (vertex, hop) lie in a queue in device memory, a warp takes 32 of
// them, and every vertex found becomes the tasks of the hops that are left to it, each exactly once: a task
// is made by whoever sets the vertex' bit in the set of the hop before. After PGSampler's persistent kernel.
//
// Tickets number the tasks: first those of the seeds, which need no queue (seed i at hop h is ticket
// i * hops + h - 1), then the slots of the queue. The picks of ticket t have their place by t.
//
// Persistent: all warps draw tickets from one counter, and wait for the slot of a ticket to be filled. The
// end is proven, not guessed: `done` counts the tasks that are finished, `tail` those that were made, and a
// task is counted as made before the task that made it is counted as done. So where `done`, read first,
// equals what `tail`, read after it, says was made, no task was unfinished when `done` was read, and none can
// follow. No warp waits for one that is not running: a ticket belongs to the warp that drew it. So blocks
// need not be resident together.
//
// Static: a warp has a share of the seeds and a queue of its own, whatever the others do; it ends when that
// is empty. Its part of the slots is a chain of chunks, the first slot of each a link.
#pragma once

#include "sampler/cuda/assemble.cuh"
#include "sampler/cuda/expand.cuh"

namespace loader {

// A task as one word, never 0. Lists of more than kPartEdges neighbors that are taken whole are split.
struct Task {
  static constexpr uint64_t kMark = uint64_t{1} << 63;

  static __device__ uint64_t pack(int64_t v, int hop, int64_t part) {
    return kMark | static_cast<uint64_t>(hop) << 59 | static_cast<uint64_t>(part) << 40 |
           static_cast<uint64_t>(v);
  }
  static __device__ int64_t vertex(uint64_t word) { return word & ((uint64_t{1} << 40) - 1); }
  static __device__ int64_t part(uint64_t word) { return word >> 40 & 0x7FFFF; }
  static __device__ int hop(uint64_t word) { return word >> 59 & 0xF; }
};

template <int Widest, bool Shared, typename Args>
struct Queue : Expansion<Args> {
  using P = typename Args::Edge;
  using N = typename Args::Vertex;
  using Expansion<Args>::Expansion;
  using Space<Args>::args;
  using Space<Args>::lane;
  static constexpr int64_t kChunk = 128;  // slots, of which the first is the link

  // A warp's own slots (static): where it reads and where it writes, each with its chunk.
  struct Chain {
    int64_t read, read_chunk, read_end;
    int64_t write, write_chunk, write_end;
  };

  __device__ int64_t seed_tasks() const { return this->num_seeds() * args.hops; }
  __device__ static void set(unsigned long long* at, uint64_t word) {
    *reinterpret_cast<volatile unsigned long long*>(at) = word;
  }
  __device__ unsigned long long* slot_at(int64_t i) const {
    return reinterpret_cast<unsigned long long*>(args.tasks) + i;
  }
  __device__ static unsigned long long get(const unsigned long long* at) {
    return *reinterpret_cast<const volatile unsigned long long*>(at);
  }

  // The word of ticket `t` of the seeds. Its first one marks the seed.
  __device__ uint64_t seed_task(int64_t t) const {
    const int64_t i = t / args.hops;
    const int hop = static_cast<int>(t - i * args.hops) + 1;
    const N v = this->seeds()[i];
    if (!this->check_seed(v)) return 0;
    if (hop == 1) {
      const uint32_t bit = 1u << v % 32;
      if (atomicOr(&this->reached(0)[v / 32], bit) & bit) this->fail(SampleStatus::kSeedDuplicate, v);
      this->mark_beyond(v, 0);
      this->row_degree()[i] = this->lists().list({v}).degree();
    }
    return Task::pack(v, hop, 0);
  }

  // Room for `total` more tasks; the first slot. All lanes call it.
  __device__ int64_t reserve(uint32_t total, Chain& chain) const {
    if constexpr (Shared) {
      unsigned long long begin = 0;
      if (lane == 0) begin = atomicAdd(&this->state().tail.value, static_cast<unsigned long long>(total));
      return __shfl_sync(kFullMask, begin, 0);
    }
    if (chain.write + total > chain.write_end) {  // go on in a new chunk, and say in the old one's link where
      const int64_t size = total + kChunk;
      unsigned long long begin = 0;
      if (lane == 0) begin = atomicAdd(&this->state().tail.value, static_cast<unsigned long long>(size));
      const int64_t chunk = __shfl_sync(kFullMask, begin, 0);
      if (chain.write_chunk < 0) {
        chain.read_chunk = chunk;
        chain.read = chunk + 1;
        chain.read_end = chunk + size;
      } else if (lane == 0 && chain.write_chunk < args.tasks_capacity) {
        set(slot_at(chain.write_chunk), static_cast<uint64_t>(size) << 40 | static_cast<uint64_t>(chunk));
      }
      chain.write_chunk = chunk;
      chain.write = chunk + 1;
      chain.write_end = chunk + size;
    }
    const int64_t begin = chain.write;
    chain.write += total;
    return begin;
  }

  __device__ void put(int64_t at, uint64_t word) const {
    if (at < args.tasks_capacity)
      set(slot_at(at), word);
    else
      this->fail(SampleStatus::kOverflow, 0);
  }

  // Makes the tasks of the vertices in `fresh`, which a lane found at its `hop`: at the next hop and, as far
  // as nobody found them there before, at the hops beyond.
  template <int K>
  __device__ void push(const N (&u)[K], uint32_t fresh, int hop, Chain& chain) const {
    while (__any_sync(kFullMask, fresh)) {
      uint32_t total;
      const uint32_t mine = hop < args.hops ? fresh : 0;
      const uint32_t before = warp_exclusive(__popc(mine), total);
      if (total == 0) return;
      int64_t at = reserve(total, chain) + before;
      uint32_t further = 0;
#pragma unroll
      for (int i = 0; i < K; ++i)
        if (mine >> i & 1) {
          put(at++, Task::pack(u[i], hop + 1, 0));
          const uint32_t bit = 1u << u[i] % 32;
          if (!(atomicOr(&this->reached(hop + 1)[u[i] / 32], bit) & bit)) further |= 1u << i;
        }
      fresh = further;
      ++hop;
    }
  }

  // Works off one task a lane; lanes without one have word 0. `first`: ticket of lane 0.
  __device__ void work(uint64_t word, int64_t first, Chain& chain, unsigned char* stage) const {
    if constexpr (Widest == 0) {
      const int entries = widest_fanout(args.fanouts, args.hops);
      for (uint32_t left = __ballot_sync(kFullMask, word != 0); left; left &= left - 1) {
        const int task = __ffs(left) - 1;
        work_wide(__shfl_sync(kFullMask, word, task), first + task, chain,
                  reinterpret_cast<uint32_t*>(stage) + threadIdx.x / 32 * entries);
      }
    } else {
      const uint32_t tasks = __ballot_sync(kFullMask, word != 0);
      const int hop = word ? Task::hop(word) : 1;
      const int64_t v = Task::vertex(word);
      const ListOf<P> list = word ? this->lists().list({v}) : ListOf<P>{0, 0};
      Picked<Widest, N> picked;
      P* const positions = args.edge_ids ? this->positions() + (first + lane) * Widest : nullptr;
      this->template expand<Widest>(v, list.begin, list.degree(), hop, hop == args.hops, positions, picked);
      push(picked.u, picked.fresh, hop, chain);
      this->store(picked, this->picks() + first * Widest,
                  reinterpret_cast<N*>(stage) + threadIdx.x / 32 * 32 * Widest, tasks);
    }
  }

  // One task by a whole warp, of any fanout.
  __device__ void work_wide(uint64_t word, int64_t ticket, Chain& chain, uint32_t* positions_of) const {
    const int64_t v = Task::vertex(word), part = Task::part(word);
    const int hop = Task::hop(word);
    const ListOf<P> list = this->lists().list({v});
    const P begin = list.begin;
    const uint32_t degree = list.degree();
    const int fanout = args.fanouts[hop - 1];
    const bool all = args.choice.whole(degree, fanout);
    int64_t count = this->count_of(degree, hop), skipped = 0;
    if (fanout == kAllNeighbors && count > kPartEdges) {
      if (part == 0) {
        const auto parts = static_cast<uint32_t>((count + kPartEdges - 1) / kPartEdges);
        const int64_t at = reserve(parts - 1, chain);
        for (uint32_t i = 1 + lane; i < parts; i += 32) put(at + i - 1, Task::pack(v, hop, i));
      }
      skipped = part * kPartEdges;
      count = min(count - skipped, kPartEdges);
    }
    if (!all && count > 0) {
      pick_row_by_warp(args.choice, this->lists(), begin, degree, this->draws({v}, hop),
                       static_cast<uint32_t>(count), positions_of);
    }
    unsigned long long into = 0;
    if (lane == 0) into = atomicAdd(&this->state().found.value, static_cast<unsigned long long>(count));
    into = __shfl_sync(kFullMask, into, 0);
    const bool fits = static_cast<int64_t>(into) + count <= args.picks_capacity;
    if (!fits) this->fail(SampleStatus::kOverflow, 0);
    if (lane == 0) args.picks_at[ticket] = static_cast<uint32_t>(into);
    uint32_t* const set = this->reached(hop);
    for (int64_t i = lane; i - lane < count; i += 32) {
      N u[1] = {0};
      uint32_t fresh = 0;
      if (i < count) {
        const P position = begin + static_cast<P>(all ? skipped + i : positions_of[i]);
        u[0] = this->lists().read(position);
        const uint32_t bit = 1u << u[0] % 32;
        fresh = !(__ldcg(set + u[0] / 32) & bit) && !(atomicOr(set + u[0] / 32, bit) & bit);
        if (fits) {
          this->picks()[into + i] = u[0];
          if (args.edge_ids) this->positions()[into + i] = position;
        }
      }
      push(u, fresh, hop, chain);
    }
    __syncwarp();
  }

  __device__ void run_shared(unsigned char* stage) const {
    Chain none{};
    const int64_t seeds = seed_tasks();
    unsigned long long finished = 0;
    const auto report = [&] {
      __threadfence();
      if (lane == 0 && finished) atomicAdd(&this->state().done.value, finished);
      finished = 0;
    };
    while (true) {
      unsigned long long drawn = 0;
      if (lane == 0) drawn = atomicAdd(&this->state().head.value, 32ULL);
      const int64_t first = __shfl_sync(kFullMask, drawn, 0), ticket = first + lane;
      uint32_t left = kFullMask;
      for (int idle = 0; left;) {
        uint64_t word = 0;
        bool ready = false;
        if (left >> lane & 1) {
          if (ticket < seeds) {
            word = seed_task(ticket);
            ready = true;
          } else if (ticket - seeds < args.tasks_capacity) {
            word = get(slot_at(ticket - seeds));
            ready = word != 0;
          }
        }
        const uint32_t tasks = __ballot_sync(kFullMask, ready);
        if (tasks) {
          idle = 0;
          left &= ~tasks;
          work(word, first, none, stage);
          finished += __popc(tasks);
          continue;
        }
        report();
        bool over = false;
        if (lane == 0 && idle % 4 == 0) {
          const unsigned long long done = get(&this->state().done.value);
          __threadfence();
          const unsigned long long made = seeds + get(&this->state().tail.value);
          over = done == made || this->status() != SampleStatus::kOk;
        }
        if (__shfl_sync(kFullMask, over, 0)) return;
        ++idle;
        __nanosleep(idle < 8 ? 40 : 200);
      }
      if (finished >= 4096) report();
    }
  }

  __device__ void run_static(unsigned char* stage) const {
    Chain chain{0, -1, 0, 0, -1, 0};
    const Share seeds = share(this->num_seeds(), this->warps(), this->warp());
    const int64_t end = seeds.end * args.hops;
    for (int64_t first = seeds.begin * args.hops; first < end; first += 32)
      work(first + lane < end ? seed_task(first + lane) : 0, first, chain, stage);
    if (chain.write_chunk < 0) return;
    while (true) {
      __syncwarp();
      // Lanes may see another warp's failure at different times; they leave together.
      if (__any_sync(kFullMask, this->status() != SampleStatus::kOk)) return;
      const int64_t at = chain.read + lane;
      const uint64_t word = at < min(chain.read_end, args.tasks_capacity) ? get(slot_at(at)) : 0;
      const uint32_t tasks = __ballot_sync(kFullMask, word != 0);
      if (tasks) {
        chain.read += __popc(tasks);  // filled slots come first
        work(word, seed_tasks() + at - lane, chain, stage);
        continue;
      }
      if (chain.read_chunk == chain.write_chunk) return;
      const uint64_t link = get(slot_at(chain.read_chunk));
      chain.read_chunk = Task::vertex(link);
      chain.read = chain.read_chunk + 1;
      chain.read_end = chain.read_chunk + static_cast<int64_t>(link >> 40);
    }
  }

  // Moves the picks of all tasks to their rows, and empties the slots.
  template <typename Sum>
  __device__ void write_tasks(const Assembly<Args, Sum>& assembly) const {
    const int64_t seeds = seed_tasks(), end = seeds + min(this->header().tasks, args.tasks_capacity);
    for (int64_t first = this->warp() * 32; first < end; first += this->warps() * 32) {
      const int64_t ticket = first + lane;
      uint64_t word = 0;
      if (ticket < seeds) {
        const int64_t i = ticket / args.hops;
        word = Task::pack(this->seeds()[i], static_cast<int>(ticket - i * args.hops) + 1, 0);
      } else if (ticket < end) {
        word = *slot_at(ticket - seeds);
        if (word) *slot_at(ticket - seeds) = 0;
      }
      if (!(word & Task::kMark)) word = 0;  // the link of a chain
      const int hop = word ? Task::hop(word) : 1;
      int64_t row = 0, out = 0, count = 0;
      if (word) {
        row = this->local()[Task::vertex(word)];
        out = this->indptr(hop)[row];
        count = this->indptr(hop)[row + 1] - out;
      }
      if constexpr (Widest > 0) {
        assembly.template write<Widest>(args.indices_at[hop - 1] + out, args.edge_ids_at[hop - 1] + out,
                                        static_cast<uint32_t>(count), first * Widest);
      } else {
        if (word && args.fanouts[hop - 1] == kAllNeighbors) {
          const int64_t skipped = Task::part(word) * kPartEdges;
          out += skipped;
          count = min(count - skipped, kPartEdges);
        }
        const int64_t from = word ? args.picks_at[ticket] : 0;
        for (uint32_t left = __ballot_sync(kFullMask, word != 0); left; left &= left - 1) {
          const int task = __ffs(left) - 1;
          assembly.write_wide(__shfl_sync(kFullMask, args.indices_at[hop - 1] + out, task),
                              __shfl_sync(kFullMask, args.edge_ids_at[hop - 1] + out, task),
                              __shfl_sync(kFullMask, count, task), __shfl_sync(kFullMask, from, task));
        }
      }
    }
  }

  // After a failure: empties the slots.
  __device__ void clean_tasks() const {
    const int64_t end = min(this->header().tasks, args.tasks_capacity);
    for (int64_t i = int64_t{this->block} * kBlock + threadIdx.x; i < end;
         i += int64_t{this->blocks} * kBlock)
      *slot_at(i) = 0;
  }

  // Between two kernels: how many slots were needed, and the counters for the next launch. One thread.
  __device__ void close() const {
    this->header().tasks = static_cast<int64_t>(this->state().tail.value);
    this->state().head.value = this->state().tail.value = this->state().done.value = 0;
    this->state().found.value = 0;
  }
};

}  // namespace loader
