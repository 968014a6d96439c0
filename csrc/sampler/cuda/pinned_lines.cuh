// Lists in pinned host memory are read by the line, or by the sectors of a line that are needed. A request
// for one word over the bus takes about as long as one for a whole line of 128 bytes, and the picks of a
// launch fall into the same lines again and again. So a hop is picked in three steps, with a barrier of the
// whole launch after the first two (a "line" here is either unit):
//
//   places  picks give places in the lists, and mark the lines that hold them in a bitmap
//   fetch   each line that no hop has asked for before is copied to GPU memory, once for all mini-batches
//   take    the neighbors are read from there, and marked as in `Picking::pick`
//
// Whole, aligned lines are how EMOGI reads a graph in host memory (Min et al., "EMOGI: efficient
// memory-access for out-of-memory graph-traversal in GPUs", VLDB 2020). Lists that are copied to GPU memory
// (CachedLists) need no line.
#pragma once

#include "sampler/cuda/picking.cuh"

namespace loader {

// The lines of a launch; `group` is the number of a warp among `groups` that work together.
template <typename P, typename N>
struct LineSet {
  using Args = LineArgs<P, N>;
  static constexpr int kEach = 16 / int{sizeof(N)};  // entries of a vector, which a lane reads at once
  static constexpr int kAhead = 4;                   // words of a lane that are looked at together

  struct alignas(16) Vector16 {
    N u[kEach];
  };
  struct alignas(16) Pair {
    Rank of_hop[2];
  };

  const Args& args;
  const int hops;
  const uint32_t lane = threadIdx.x % 32;

  __device__ LineSet(const Args& args, int hops) : args(args), hops(hops) {}

  __device__ int64_t line_of(P place) const {
    return (static_cast<int64_t>(place) + args.shift) >> args.log_entries;
  }
  __device__ int64_t entry_of(P place) const {
    return (static_cast<int64_t>(place) + args.shift) & (args.num_in_unit() - 1);
  }
  __device__ Rank* ranks(int64_t word) const { return args.ranks + word * rank_width(hops); }

  __device__ Pair pair(int64_t word, int hop) const {
    return *reinterpret_cast<const Pair*>(ranks(word) + hop);
  }

  __device__ bool by_sectors() const { return args.num_in_unit() == 2 * kEach; }

  // Sectors of eight lines, and those between two of the same line.
  __device__ static uint32_t filled(uint32_t x) {
    const uint32_t above = (x << 1 & 0xEEEEEEEEu) | (x << 2 & 0xCCCCCCCCu) | (x << 3 & 0x88888888u);
    const uint32_t below = (x >> 1 & 0x77777777u) | (x >> 2 & 0x33333333u) | (x >> 3 & 0x11111111u);
    return x | (above & below);
  }

  // Marks the lines of places: of each lane the first `count` of them that are not negative. Ascending places
  // have their lines beside each other.
  template <int K>
  __device__ void mark(const P (&place)[K], uint32_t count) const {
    if (!args.marks) return;
    int64_t line[K];
    uint32_t known[K];
#pragma unroll
    for (int i = 0; i < K; ++i) {
      const bool needed = i < static_cast<int>(count) && place[i] >= 0;
      line[i] = needed ? line_of(place[i]) : -1;
      known[i] = needed && (i == 0 || line[i] != line[i > 0 ? i - 1 : 0]) ? __ldcg(args.marks + line[i] / 32)
                                                                          : kFullMask;
    }
#pragma unroll
    for (int i = 0; i < K; ++i) {
      const uint32_t bit = 1u << static_cast<uint32_t>(line[i]) % 32;
      if (line[i] >= 0 && !(known[i] & bit)) atomicOr(args.marks + line[i] / 32, bit);
    }
  }

  // Copies the lines that were marked since the last hop. They get the next slots, in any order: no byte of a
  // mini-batch depends on it. Lines that find no slot are not copied. By warp `group` of `groups`.
  __device__ void fetch(int hop, int64_t group, int64_t groups) const {
    __shared__ uint32_t waiting_lines[kWarps][64], waiting_slots[kWarps][64];
    uint32_t* const lines = waiting_lines[threadIdx.x / 32];
    uint32_t* const slots = waiting_slots[threadIdx.x / 32];
    uint32_t waiting = 0;
    for (int64_t first = group * 32 * kAhead; first < args.words; first += groups * 32 * kAhead) {
      uint32_t word[kAhead], before[kAhead], sum[kAhead], total = 0;
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int64_t at = first + 32 * j + lane;
        word[j] = at < args.words ? __ldcg(args.marks + at) : 0;
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const uint32_t before = word[j] && hop > 1 ? asked_before(first + 32 * j + lane, hop) : 0;
        word[j] &= ~before;
        if (by_sectors()) word[j] = filled(word[j]) & ~before;
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) before[j] = __popc(word[j]);
      warp_exclusive(before, sum);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) total += sum[j];
      if (total == 0) continue;
      unsigned long long slot = 0;
      if (lane == 0) slot = atomicAdd(args.used, static_cast<unsigned long long>(total));
      slot = __shfl_sync(kFullMask, slot, 0);
#pragma unroll 1
      for (int j = 0; j < kAhead; ++j) {
        const int64_t at = first + 32 * j + lane;
        if (word[j]) ranks(at)[hop - 1] = {word[j], static_cast<uint32_t>(slot + before[j])};
        for (uint32_t from = 0; from < sum[j]; from += 32) {
          const uint32_t number = from + lane, count = min(32u, sum[j] - from);
          const uint32_t place =
              Space<UniformArgs<P, N>>::marked_at(word[j], before[j], min(number, sum[j] - 1));
          if (number < sum[j]) {
            lines[waiting + lane] = static_cast<uint32_t>((first + 32 * j) * 32 + place);
            slots[waiting + lane] = static_cast<uint32_t>(slot + number);
          }
          waiting += count;
          __syncwarp();
          if (waiting < 32) continue;
          copy(lines, slots, 32);
          waiting -= 32;
          const uint32_t line = lines[32 + lane], to = slots[32 + lane];
          __syncwarp();
          if (lane < waiting) {
            lines[lane] = line;
            slots[lane] = to;
          }
          __syncwarp();
        }
        slot += sum[j];
      }
    }
    if (waiting > 0) copy(lines, slots, waiting);
    __syncwarp();
  }

  // Reads the neighbors at places: of each lane the first `count`.
  template <int K, typename Lists>
  __device__ void read(const Lists& lists, int hop, const P (&place)[K], uint32_t count, N (&u)[K]) const {
    int64_t slot[K];
#pragma unroll
    for (int i = 0; i < K; ++i) slot[i] = args.capacity;
    if (args.marks) {
      for (int h = 0; h < hop; h += 2) {
        Pair two[K];
#pragma unroll
        for (int i = 0; i < K; ++i)
          if (i < static_cast<int>(count) && place[i] >= 0) two[i] = pair(line_of(place[i]) / 32, h);
#pragma unroll
        for (int i = 0; i < K; ++i) {
          if (i >= static_cast<int>(count) || place[i] < 0) continue;
          const uint32_t bit = 1u << line_of(place[i]) % 32;
#pragma unroll
          for (const Rank& rank : two[i].of_hop)
            if (rank.bits & bit) slot[i] = int64_t{rank.first} + __popc(rank.bits & (bit - 1));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < K; ++i) {
      if (i >= static_cast<int>(count)) continue;
      if (place[i] < 0)
        u[i] = load(args.cached.entries + ~place[i]);
      else if (slot[i] < args.capacity)
        u[i] = __ldcg(args.staged + (slot[i] << args.log_entries) + entry_of(place[i]));
      else
        u[i] = lists.read(place[i]);
    }
  }

  // Forgets all lines: the next launch begins without any. By thread `thread` of `threads`.
  __device__ void forget(int64_t thread, int64_t threads) const {
    if (!args.marks) return;
    if (thread == 0) *args.used = 0;
    for (int64_t at = thread; at < args.words; at += threads) {
      if (!args.marks[at]) continue;
      args.marks[at] = 0;
#pragma unroll 1
      for (int h = 0; h < hops; ++h) ranks(at)[h] = {0, 0};
    }
  }

 private:
  __device__ uint32_t asked_before(int64_t word, int hop) const {
    uint32_t bits = 0;
#pragma unroll 1
    for (int h = 0; h < hop - 1; ++h) bits |= ranks(word)[h].bits;
    return bits;
  }

  __device__ void copy(const uint32_t* lines, const uint32_t* slots, uint32_t count) const {
    if (by_sectors())
      copy_vectors<2>(lines, slots, count);
    else
      copy_vectors<8>(lines, slots, count);
    __syncwarp();
  }

  // Copies `count` <= 32 units of `kVectors` vectors. All reads of a lane are under way at once. The vectors
  // of a line are read together, by lanes beside each other: one request over the bus.
  template <int kVectors>
  __device__ void copy_vectors(const uint32_t* lines, const uint32_t* slots, uint32_t count) const {
    constexpr int kTogether = 32 / kVectors;
    Vector16 vector[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const uint32_t i = j * kTogether + lane / kVectors;
      if (i < count && slots[i] < args.capacity) vector[j] = vector_of(lines[i], lane % kVectors);
    }
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const uint32_t i = j * kTogether + lane / kVectors;
      if (i < count && slots[i] < args.capacity)
        reinterpret_cast<Vector16*>(args.staged)[int64_t{slots[i]} * kVectors + lane % kVectors] = vector[j];
    }
  }

  // A vector of a unit. The first and the last unit may reach beyond the array.
  __device__ Vector16 vector_of(uint32_t line, int number) const {
    const int64_t first = (int64_t{line} << args.log_entries) - args.shift + number * kEach;
    if (first >= 0 && first + kEach <= args.num_entries)
      return *reinterpret_cast<const Vector16*>(args.entries + first);
    Vector16 vector{};
    for (int k = 0; k < kEach; ++k)
      if (first + k >= 0 && first + k < args.num_entries) vector.u[k] = args.entries[first + k];
    return vector;
  }
};

// The picks of a hop as places: in the lists, or, negative, in the lists that are in GPU memory.
template <typename Args>
struct PlacePicks : Picking<Space<Args>> {
  using P = typename Args::Edge;
  using N = typename Args::Vertex;
  using Base = Picking<Space<Args>>;
  using Base::args;
  using Base::Base;
  using Base::block;
  using Base::blocks;
  using Base::lane;
  using Lines = LineSet<P, N>;

  // Where the list of a vertex begins among those in GPU memory; negative: it is not there.
  __device__ P home_of(int64_t v) const {
    const P* const homes = args.lines.cached.begins;
    return homes ? load(homes + v) : P{-1};
  }

  // By threads, a row each, as Picking::pick.
  template <int K>
  __device__ void pick_by_threads(int hop, int64_t rows) const {
    const P* const indptr = this->indptr(hop);
    P* const edge_ids = args.edge_ids ? this->edge_ids(hop) : nullptr;
    const auto fanout = static_cast<uint32_t>(args.fanouts[hop - 1]);
    const int64_t first = int64_t{threadIdx.x / 32} * blocks + block;
    for (int64_t group = first; group * 32 < rows; group += this->warps()) {
      const int64_t row = group * 32 + lane;
      const bool valid = row < rows;
      const int64_t v = valid ? int64_t{this->nodes()[row]} : 0;
      const P begin = valid ? this->row_begin()[row] : 0;
      const uint32_t degree = valid ? this->row_degree()[row] : 0;
      const P home = valid ? home_of(v) : P{-1};
      P* const out = this->line_places() + (valid ? indptr[row] : 0);
      uint32_t t[K];
      const Draws draws = this->draws({v}, hop);
      const uint32_t count = pick_row<K>(args.choice, this->lists(), begin, degree, draws, fanout, t);
      P place[K];
#pragma unroll
      for (int i = 0; i < K; ++i) {
        if (i >= static_cast<int>(count)) continue;
        const P at = static_cast<P>(t[i]);
        if (edge_ids) edge_ids[indptr[row] + i] = begin + at;
        place[i] = home < 0 ? static_cast<P>(begin + at) : static_cast<P>(~(home + at));
        out[i] = place[i];
      }
      Lines(args.lines, args.hops).mark(place, count);
    }
  }

  // One pick, by a lane of a warp: entry `i` of the list of `row`, which begins at `begin`.
  __device__ void put(int hop, int64_t row, P begin, P i, P out, bool valid) const {
    P place[1] = {0};
    if (valid) {
      const P home = home_of(this->nodes()[row]);
      if (args.edge_ids) this->edge_ids(hop)[out] = begin + i;
      place[0] = home < 0 ? static_cast<P>(begin + i) : static_cast<P>(~(home + i));
      this->line_places()[out] = place[0];
    }
    Lines(args.lines, args.hops).mark(place, valid);
  }
};

// The neighbors at the places of a hop's `edges` picks: into `indices`, and marked. `Phases`: HopwisePhases
// or HashedPhases.
template <typename Phases>
__device__ void take_places(const Phases& phases, int hop, int64_t edges) {
  using P = typename Phases::Edge;
  using N = typename Phases::Vertex;
  constexpr int kEach = 4;
  const LineSet<P, N> lines(phases.args.lines, phases.args.hops);
  const P* const places = phases.line_places();
  N* const indices = phases.indices(hop);
  for (int64_t first = phases.warp() * 32 * kEach; first < edges; first += phases.warps() * 32 * kEach) {
    P place[kEach];
    N u[kEach];
    uint32_t count = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t e = first + 32 * i + phases.lane;
      if (e < edges) {
        place[i] = places[e];
        count = i + 1;
      }
    }
    lines.read(phases.lists(), hop, place, count, u);
    phases.note(hop, u, count);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (i < static_cast<int>(count)) indices[first + 32 * i + phases.lane] = u[i];
  }
}

}  // namespace loader
