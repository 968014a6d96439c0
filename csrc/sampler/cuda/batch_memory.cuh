// One mini-batch of a launch, for its thread blocks: its arrays, and their place in the group of blocks.
#pragma once

#include "sampler/cuda/collectives.cuh"
#include "sampler/cuda/sampler.h"

// What a thread tells of a row that it writes, or reads where no barrier need have been since: nothing. Tests
// on the host check that a warp reads only rows that it wrote.
#ifndef LOADER_WRITES_ROW
#define LOADER_WRITES_ROW(at)
#define LOADER_READS_ROW(at)
#endif

namespace loader {

constexpr int kTileWords = 8;  // words of a bitmap that a warp handles together
constexpr int kTilesPerLoad = 32 / kTileWords;
constexpr uint32_t kTileMask = (1u << kTileWords) - 1;
constexpr int kDealt = 2;  // rows that a lane looks up at once

// Hands the sizes of a mini-batch to the host, which waits for `sequence`. Out of line: a kernel has several
// places that may do this, and runs one of them.
static __device__ __noinline__ void hand_over(const SampleHeader& own, SampleHeader* host, int hops,
                                              SampleStatus status, int64_t lines, uint64_t sequence) {
#pragma unroll 1
  for (int h = 0; h <= hops; ++h) host->frontiers[h] = own.frontiers[h];
#pragma unroll 1
  for (int h = 0; h < hops; ++h) host->edges[h] = own.edges[h];
  host->status = status;
  host->detail = own.detail;
  host->hops_done = own.hops_done;
  host->counted = own.counted;
  host->lines = lines;
  __threadfence_system();
  *reinterpret_cast<volatile uint64_t*>(&host->sequence) = sequence;
}

template <typename Args>
struct Space {
  using Edge = typename Args::Edge;
  using Vertex = typename Args::Vertex;
  using P = Edge;
  using N = Vertex;
  using Lists = typename Args::Lists;
  using ListRow = typename Lists::Row;
  using List = ListOf<P>;
  using Choice = typename Args::Choice;
  // Only a scan tells how many of a list are picked.
  static constexpr bool kScans = !Args::Choice::kCountsByDegree;
  // A vertex has several lists, which become rows by themselves (hetero.cuh).
  static constexpr bool kHetero = std::is_same_v<ListRow, HeteroRow>;

  const Args& args;
  const int slot;   // which mini-batch of the launch
  const int block;  // of the `blocks` that work on it
  const int blocks;
  const uint32_t lane = threadIdx.x % 32;

  __device__ Space(const Args& a, int slot, int block, int blocks)
      : args(a), slot(slot), block(block), blocks(blocks) {}

  // Warps in the order of prefix sums.
  __device__ int64_t warp() const { return int64_t{block} * kWarps + threadIdx.x / 32; }
  __device__ int64_t warps() const { return int64_t{blocks} * kWarps; }
  // The number of this thread among all threads of the mini-batch. They are numbered block by block.
  __device__ int64_t thread() const { return int64_t{block} * kBlock + threadIdx.x; }
  __device__ int64_t threads() const { return int64_t{blocks} * kBlock; }

  __device__ const BatchArgs& batch() const { return args.batches[slot]; }
  // The lists of this mini-batch.
  __device__ const Lists& lists() const { return args.lists; }
  // How its lists are picked from.
  __device__ const Choice& choice() const { return args.choice; }
  // What its rows draw by at a hop.
  __device__ Draws draws(const ListRow& row, int hop) const { return draws_of(batch().key, row, hop); }
  __device__ const N* seeds() const { return static_cast<const N*>(batch().seeds); }
  __device__ int64_t num_seeds() const { return batch().num_seeds; }
  __device__ N* nodes() const { return static_cast<N*>(batch().vertices); }
  __device__ N* indices(int hop) const {
    return static_cast<N*>(batch().vertices) + args.indices_at[hop - 1];
  }
  __device__ P* indptr(int hop) const { return static_cast<P*>(batch().edges) + args.indptr_at[hop - 1]; }
  __device__ P* edge_ids(int hop) const { return static_cast<P*>(batch().edges) + args.edge_ids_at[hop - 1]; }

  __device__ int64_t num_words() const { return (args.num_nodes + 31) / 32; }
  __device__ int64_t num_tiles() const { return (num_words() + kTileWords - 1) / kTileWords; }
  // The vertices within `hop` hops; hop by hop those found at the hop, and from 0 on those found before.
  __device__ uint32_t* reached(int hop) const {
    return args.bitmaps + slot * args.bitmaps_stride + hop * num_words();
  }
  __device__ N* local() const { return args.local + slot * args.local_stride; }
  __device__ P* row_begin() const { return args.row_begin + slot * args.rows_capacity; }
  __device__ uint32_t* row_degree() const { return args.row_degree + slot * args.rows_capacity; }
  __device__ uint32_t* row_picks() const { return args.row_picks + slot * args.rows_capacity; }
  __device__ N* list() const { return args.list + slot * args.rows_capacity; }
  __device__ N* picks() const { return args.picks + slot * args.picks_capacity; }
  __device__ P* positions() const { return args.positions + slot * args.picks_capacity; }
  __device__ P* line_places() const { return args.lines.places + slot * args.lines.places_capacity; }
  __device__ SampleState& state() const { return args.state[slot]; }
  __device__ SampleHeader& header() const { return state().header; }

  __device__ uint32_t count_of(uint32_t degree, int hop) const {
    return static_cast<uint32_t>(args.choice.count(degree, args.fanouts[hop - 1]));
  }

  __device__ ListPart* pieces() const { return args.scan.pieces + slot * args.scan.pieces_capacity; }

  __device__ uint32_t num_pieces(uint32_t degree) const { return (degree - 1) / args.scan.piece + 1; }

  // The first of the pieces of a list of `degree`.
  __device__ int64_t take_pieces(uint32_t degree) const {
    return static_cast<int64_t>(
        atomicAdd(&state().tail.value, static_cast<unsigned long long>(num_pieces(degree))));
  }

  // How many of them there is room for.
  __device__ uint32_t room_for_pieces(int64_t first, uint32_t degree) const {
    const int64_t room = args.scan.pieces_capacity - min(first, args.scan.pieces_capacity);
    return static_cast<uint32_t>(min(int64_t{num_pieces(degree)}, room));
  }

  // Registers the pieces of a row's list, if it is to be scanned in pieces. With seeds that come twice there
  // may be more than there is room for; then nothing is scanned.
  __device__ void cut_list(int64_t row, uint32_t degree) const {
    if (degree <= args.scan.piece) return;
    const int64_t first = take_pieces(degree);
    const uint32_t room = room_for_pieces(first, degree);
#pragma unroll 2
    for (uint32_t i = 0; i < room; ++i) pieces()[first + i] = {static_cast<uint32_t>(row), i, 0, 0};
  }

  // The same for a row of each lane of a warp, with a degree of 0 for lanes that have none. All write the
  // pieces of one list after the other: a hub has thousands.
  __device__ void cut_lists(int64_t row, uint32_t degree) const {
    for (uint32_t left = __ballot_sync(kFullMask, degree > args.scan.piece); left; left &= left - 1) {
      const int owner = __ffs(left) - 1;
      const uint32_t entries = __shfl_sync(kFullMask, degree, owner);
      const auto number = static_cast<uint32_t>(__shfl_sync(kFullMask, row, owner));
      const int64_t first = __shfl_sync(kFullMask, lane == 0 ? take_pieces(entries) : 0, 0);
      const uint32_t room = room_for_pieces(first, entries);
      for (uint32_t i = lane; i < room; i += 32) pieces()[first + i] = {number, i, 0, 0};
    }
  }

  // After a failure: no piece is left, and none is done.
  __device__ void clean_pieces() const {
#pragma unroll 1
    for (int64_t i = thread(); i < args.scan.pieces_capacity; i += threads()) pieces()[i].done = 0;
    if (thread() == 0) state().head.value = state().tail.value = 0;
  }

  // The first error of a mini-batch stays. Whether it is this one.
  __device__ bool fail(SampleStatus status, int64_t detail) const {
    auto* const word = reinterpret_cast<unsigned long long*>(&state().error);
    const unsigned long long mine = batch().sequence << 8 | static_cast<unsigned long long>(status);
    unsigned long long before = *reinterpret_cast<volatile unsigned long long*>(word);
    while (before >> 8 != batch().sequence) {
      const unsigned long long seen = atomicCAS(word, before, mine);
      if (seen == before) {
        header().detail = detail;
        return true;
      }
      before = seen;
    }
    return false;
  }

  __device__ SampleStatus status() const {
    const uint64_t error = *reinterpret_cast<volatile uint64_t*>(&state().error);
    return error >> 8 == batch().sequence ? static_cast<SampleStatus>(error & 0xFF) : SampleStatus::kOk;
  }

  // Whether a seed is a vertex of the graph; the host is told of one that is not.
  __device__ bool check_seed(N v) const {
    if (v >= 0 && v < args.num_nodes) return true;
    fail(SampleStatus::kSeedRange, v);
    return false;
  }

  // Hands the sizes to the host, which waits for `sequence`. One thread.
  __device__ void publish() const {
    const int64_t lines = args.lines.marks ? static_cast<int64_t>(__ldcg(args.lines.used)) : 0;
    hand_over(header(), batch().host_header, args.hops, status(), lines, batch().sequence);
  }

  // After a failure: leaves the bitmaps as the next launch wants them.
  __device__ void clean() const {
    uint32_t* const words = reached(0);
#pragma unroll 1
    for (int64_t i = thread(); i < (args.hops + 1) * num_words(); i += threads()) words[i] = 0;
  }

  // Fills the outputs beyond the mini-batch, or all of them: vertex 0, empty rows, edges to local vertex 0.
  // So a padded mini-batch can be used as it is: what is added reaches none of the seeds. All threads of the
  // group.
  __device__ void fill_rest(bool all) const {
    const int64_t thread = this->thread(), threads = this->threads();
    const int hops = args.hops;
    const auto frontier = [&](int h) { return all ? 0 : header().frontiers[h]; };
    const auto edges = [&](int h) { return all ? 0 : header().edges[h]; };
#pragma unroll 1
    for (int64_t i = frontier(hops) + thread; i < args.frontier_capacity[hops]; i += threads) nodes()[i] = 0;
    for (int hop = 1; hop <= hops; ++hop) {
      for (int64_t i = edges(hop - 1) + thread; i < args.edge_capacity[hop - 1]; i += threads) {
        indices(hop)[i] = 0;
        if (args.edge_ids) edge_ids(hop)[i] = 0;
      }
      const int64_t first = all ? 0 : frontier(hop - 1) + 1;
      for (int64_t i = first + thread; i <= args.frontier_capacity[hop - 1]; i += threads)
        indptr(hop)[i] = static_cast<P>(edges(hop - 1));
    }
    if (thread <= 2 * hops && batch().sizes)
      batch().sizes[thread] = thread <= hops ? frontier(thread) : edges(thread - hops - 1);
  }

  // A word of each lane: those of the tiles from `first` on, zero beyond tile `end`.
  __device__ uint32_t load_words(const uint32_t* bitmap, int64_t first, int64_t end) const {
    const int64_t index = first * kTileWords + lane;
    return index < min(end * kTileWords, num_words()) ? bitmap[index] : 0;
  }

  // Vertices and their rows in the graph, kDealt a lane; number j of a lane comes 32 places after number j
  // - 1.
  struct Rows {
    bool valid[kDealt];
    int64_t v[kDealt];
    P begin[kDealt];
    uint32_t degree[kDealt];  // 0 where not valid
  };

  // Calls `f(before, rows)` with the vertices that are marked in 32 words, a word a lane and those of the
  // tiles from `first` on, in ascending order; `before` is the number of those dealt out by earlier calls.
  // Returns how many are marked. Also if a word has few of them, lanes are idle only in the last call. All
  // loads are under way before the first is used; nothing in the kernel writes the graph.
  template <typename F>
  __device__ uint32_t deal_rows(int64_t first, uint32_t word, const F& f) const {
    if (!__any_sync(kFullMask, word)) return 0;
    uint32_t total;
    const uint32_t below = warp_exclusive(__popc(word), total);
    for (uint32_t before = 0; before < total; before += 32 * kDealt) {
      Rows rows;
      List list[kDealt];
#pragma unroll
      for (int j = 0; j < kDealt; ++j) {
        const uint32_t number = before + 32 * j + lane;
        rows.valid[j] = number < total;
        rows.v[j] = first * kTileWords * 32 + marked_at(word, below, min(number, total - 1));
        list[j] = rows.valid[j] ? lists().list({rows.v[j]}) : List{0, 0};
      }
#pragma unroll
      for (int j = 0; j < kDealt; ++j) {
        rows.begin[j] = list[j].begin;
        rows.degree[j] = list[j].degree();
      }
      f(before, rows);
    }
    return total;
  }

  // Calls `f(number, v)` for the same vertices, with the number of those before; for few instructions a
  // vertex.
  template <typename F>
  __device__ uint32_t number_marked(int64_t first, uint32_t word, const F& f) const {
    const uint32_t filled = __ballot_sync(kFullMask, word);
    uint32_t total = 0;
    for (int t = 0; t < kTilesPerLoad; ++t) {
      if (!(filled >> t * kTileWords & kTileMask)) continue;
#pragma unroll
      for (int j = 0; j < kTileWords; ++j) {
        const uint32_t bits = __shfl_sync(kFullMask, word, t * kTileWords + j);
        if (bits >> lane & 1)
          f(total + __popc(bits & ((1u << lane) - 1)), ((first + t) * kTileWords + j) * 32 + lane);
        total += __popc(bits);
      }
    }
    return total;
  }

  // The place of bit `number` of those set in the words of all lanes. `below`: bits set in the words before
  // the lane's.
  __device__ static uint32_t marked_at(uint32_t word, uint32_t below, uint32_t number) {
    uint32_t owner = 0;  // the last lane that has no more bits before its word
#pragma unroll
    for (uint32_t step = 16; step > 0; step /= 2)
      if (__shfl_sync(kFullMask, below, owner + step) <= number) owner += step;
    const uint32_t bits = __shfl_sync(kFullMask, word, owner);
    uint32_t left = number - __shfl_sync(kFullMask, below, owner), place = 0;
#pragma unroll
    for (uint32_t width = 16; width > 0; width /= 2) {
      const uint32_t lower = __popc(bits >> place & ((1u << width) - 1));
      if (lower <= left) {
        left -= lower;
        place += width;
      }
    }
    return owner * 32 + place;
  }
};

}  // namespace loader
