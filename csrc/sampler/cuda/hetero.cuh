// The sampling of lists by vertex and relation (graph/hetero.h), all hops in one launch:
//
//   count   makes rows of the lists of the vertices that the hop before found, and counts what all rows pick
//   assign  prefix sums over those: the hop's indptr
//   pick    a thread or a warp a row: picks, reads the neighbors, marks the new ones
//
// and then what the set of vertices has to do until those are in ascending order (hopwise.cuh,
// hash_set_phases.cuh). Where picks need a scan of the lists (hetero_scan.cuh), the kernel makes and scans a
// hop's rows before that. A barrier comes after each. Vertices of a hop are in the order of their ids, and so
// of their types. So where those of a type begin tells for any row its vertex and its relation.
#pragma once

#include "sampler/cuda/hetero_scan.cuh"
#include "sampler/cuda/phases.cuh"
#include "sampler/cuda/scan_picks.cuh"

namespace loader {

// Of lists that are taken whole and are longer, entries are shared out, not rows.
#ifndef LOADER_SAMPLER_SHORT_LIST
#define LOADER_SAMPLER_SHORT_LIST 1024
#endif
constexpr uint32_t kShortList = LOADER_SAMPLER_SHORT_LIST;

// Of the vertices that a hop found, and of their rows: where those of each type begin, and the end.
struct Segments {
  int64_t vertices[kMaxTypes + 1];
  int64_t rows[kMaxTypes + 1];
};

// `Sets`: HopwisePhases or HashedPhases.
template <typename Sets>
struct HeteroPhases : Sets {
  using P = typename Sets::Edge;
  using N = typename Sets::Vertex;
  using Sets::args;
  using Sets::block;
  using Sets::blocks;
  using Sets::lane;
  using Sets::Sets;
  using Row = typename Sets::ListRow;
  static_assert(Sets::kHetero && (Sets::kHashed || !Sets::kScans));

  __device__ N* row_vertex() const { return args.row_vertex + this->slot * args.rows_capacity; }
  __device__ uint32_t* row_kind() const { return args.row_kind + this->slot * args.rows_capacity; }
  __device__ int types() const { return args.lists.num_types; }

  __device__ int fanout(uint32_t kind, int hop) const {
    return args.relation_fanouts[(hop - 1) * args.num_relations + (kind & 0xFFFF)];
  }
  __device__ uint32_t count_of_row(int64_t row, int hop) const {
    if constexpr (Sets::kScans)
      return this->row_picks()[row];
    else
      return static_cast<uint32_t>(args.choice.count(this->row_degree()[row], fanout(row_kind()[row], hop)));
  }
  __device__ Row row_of(int64_t row) const {
    const uint32_t kind = row_kind()[row];
    return {row_vertex()[row], 0, kind >> 16, kind & 0xFFFF};
  }

  // Whether the seeds come type after type; the host is told of one that does not. All threads.
  __device__ void check_order() const {
    for (int64_t i = this->thread() + 1; i < this->num_seeds(); i += this->threads()) {
      const N v = this->seeds()[i], before = this->seeds()[i - 1];
      if (v < before && args.lists.type_of(v) < args.lists.type_of(before))
        this->fail(SampleStatus::kSeedOrder, v);
    }
  }

  // The vertices that `hop` found lie among these. Of the seeds they are what was given: nobody need have
  // written them as nodes yet.
  __device__ const N* vertices(int hop) const { return hop == 0 ? this->seeds() : this->nodes(); }

  // The first place in vertices [begin, end) of one of type `t` or a later one, by a warp.
  __device__ int64_t first_of_type(int t, const N* vertices, int64_t begin, int64_t end) const {
    const int64_t id = args.lists.types[t].first;
    return first_by_warp(begin, end, [&](int64_t at) { return int64_t{vertices[at]} < id; });
  }

  // Finds the segments of the vertices [begin, end), which `hop` found, and tells the host their sizes. Their
  // rows follow `rows` others. All threads.
  __device__ void find_segments(Segments& found, int hop, int64_t begin, int64_t end, int64_t rows) const {
    __syncthreads();  // `found` may still be read
    for (int t = threadIdx.x / 32; t < types(); t += kWarps) {
      const int64_t first = first_of_type(t, vertices(hop), begin, end);
      if (lane == 0) found.vertices[t] = first;
    }
    if (threadIdx.x == 0) found.vertices[types()] = end;
    __syncthreads();
    if (threadIdx.x == 0) {
      auto* const host = static_cast<HeteroHeader*>(this->batch().host_header)->new_by_type + hop * kMaxTypes;
      int64_t at = rows;
      for (int t = 0; t < types(); ++t) {
        const int64_t count = found.vertices[t + 1] - found.vertices[t];
        found.rows[t] = at;
        at += count * args.lists.types[t].relations;
        if (block == 0) host[t] = count;  // the thread that publishes it
      }
      found.rows[types()] = at;
    }
    __syncthreads();
  }

  // Makes row `row` of the vertices in `found`, which `hop` found.
  __device__ void make_row(const Segments& found, int hop, int64_t row) const {
    int t = 0;
    for (int step = kMaxTypes / 2; step > 0; step /= 2)
      if (t + step < types() && found.rows[t + step] <= row) t += step;
    const VertexType& type = args.lists.types[t];
    const auto number = static_cast<uint32_t>(row - found.rows[t]);
    const auto relations = static_cast<uint32_t>(type.relations);
    const uint32_t vertex = number / relations, slot = number - vertex * relations;
    const N v = vertices(hop)[found.vertices[t] + vertex];
    const int64_t end = t + 1 < types() ? args.lists.types[t + 1].first : args.num_nodes;
    const Row own = type.row(v, slot);
    const bool good = v >= type.first && v < end;  // of a bad seed nothing is read
    const ListOf<P> list = good ? this->lists().list(own) : ListOf<P>{0, 0};
    this->row_begin()[row] = list.begin;
    this->row_degree()[row] = list.degree();
    row_vertex()[row] = v;
    row_kind()[row] = own.relation | slot << 16;
    if constexpr (Sets::kScans) this->cut_list(row, list.degree());
  }

  // Makes the rows [made, end) of `hop`, which are to be scanned.
  __device__ void make_rows(const Segments& found, int hop, int64_t made, int64_t end) const {
    for (int64_t row = made + this->thread(); row < end; row += this->threads())
      make_row(found, hop - 1, row);
  }

  // What the scan of `hop` leaves behind, for the next one: of its rows and pieces none is left where a hop
  // has only new ones. One thread.
  __device__ void end_scan() const {
    this->state().head.value = 0;
    if (args.once) this->state().tail.value = 0;
  }

  // Rows [first, end) are those of `hop`; from `made` on they are made here, unless they were scanned.
  __device__ void count_hetero(const Segments& found, int hop, int64_t first, int64_t made,
                               int64_t end) const {
    __shared__ int64_t partial[kWarps];
    const Share groups = this->own_groups(end - first);
    int64_t edges = 0;
    for (int64_t row = first + groups.begin * 32 + lane; row < min(first + groups.end * 32, end); row += 32) {
      if constexpr (!Sets::kScans)
        if (row >= made) make_row(found, hop - 1, row);
      edges += count_of_row(row, hop);
    }
    this->write_totals(edges, partial);
  }

  // Writes the indptr of `hop`; `edges` becomes its size. False where the outputs are too small.
  __device__ bool assign_hetero(int hop, int64_t first, int64_t end, int64_t& edges) const {
    int64_t at;
    this->prefix(at, edges);
    const bool fits = edges <= args.edge_capacity[hop - 1];
    if (this->thread() == 0) {
      this->header().edges[hop - 1] = edges;
      if (!fits) {
        this->fail(SampleStatus::kOverflow, 0);
        this->publish();
      }
    }
    if (!fits) return false;
    P* const indptr = this->indptr(hop);
    const Share groups = this->own_groups(end - first);
    for (int64_t group = groups.begin; group < groups.end; ++group) {
      const int64_t row = first + group * 32 + lane;
      uint32_t sum;
      const uint32_t offset = warp_exclusive(row < end ? count_of_row(row, hop) : 0, sum);
      if (row < end) indptr[row - first] = static_cast<P>(at + offset);
      at += sum;
    }
    if (this->warp() == this->warps() - 1 && lane == 0) indptr[end - first] = static_cast<P>(edges);
    return true;
  }

  // Picks of `hop`, a thread a row; see Picking::pick.
  template <int K>
  __device__ void pick_hetero(int hop, int64_t first, int64_t end, N* stage) const {
    const P* const indptr = this->indptr(hop);
    const int64_t rows = end - first;
    stage += threadIdx.x / 32 * 32 * K;
    const int64_t own = int64_t{threadIdx.x / 32} * blocks + block;
    for (int64_t group = own; group * 32 < rows; group += this->warps()) {
      const int64_t at = group * 32 + lane;
      const bool valid = at < rows;
      const Row row = valid ? row_of(first + at) : Row{};
      const P begin = valid ? this->row_begin()[first + at] : 0;
      const uint32_t degree = valid ? this->row_degree()[first + at] : 0;
      const P out = valid ? indptr[at] : 0;
      const P out_begin = __shfl_sync(kFullMask, out, 0);
      const auto out_count = static_cast<uint32_t>(indptr[min(rows, group * 32 + 32)] - out_begin);
      const auto most = valid ? static_cast<uint32_t>(fanout(row.relation, hop)) : 0;

      uint32_t t[K];
      const uint32_t count =
          most == 0 ? 0
                    : pick_row<K>(args.choice, this->lists(), begin, degree, this->draws(row, hop), most, t);
      this->write_picks(hop, begin, t, count, {out, out_begin, out_count}, stage);
    }
  }

  // The same of any fanouts: see Picking::pick_wide. `stage`: kWarps * widest_fanout() entries.
  __device__ void pick_wide_hetero(int hop, int64_t first, int64_t end, int64_t edges,
                                   uint32_t* stage) const {
    const auto put = this->taking(hop);
    const P* const indptr = this->indptr(hop);
    stage += threadIdx.x / 32 * widest_fanout(args.fanouts, args.hops);
    const auto draws = [&](int64_t row) { return this->draws(row_of(row), hop); };
    this->for_each_group(end - first, [&](int64_t group, int64_t at, bool valid) {
      const int64_t row = first + at;
      const uint32_t degree = valid ? this->row_degree()[row] : 0;
      const int most = valid ? fanout(row_kind()[row], hop) : 0;
      auto count = static_cast<uint32_t>(args.choice.count(degree, most));
      if (most == kAllNeighbors && count > kShortList) count = 0;
      const P begin = valid ? this->row_begin()[row] : 0;
      this->pick_group(first + group, {begin, begin + static_cast<P>(degree)}, count,
                       args.choice.whole(degree, most), valid ? indptr[at] : 0, stage, draws, put);
    });
    if (!(args.takes_all >> (hop - 1) & 1)) return;
    constexpr int64_t kChunk = 256;
    const int64_t rows = end - first;
    for (int64_t chunk = this->warp(); chunk * kChunk < edges; chunk += this->warps()) {
      const int64_t begin = chunk * kChunk, last = min(edges, begin + kChunk);
      int64_t at = this->row_of(indptr, 0, rows, begin);
      for (int64_t e = begin; e < last; ++at) {
        const int64_t row_end = min(int64_t{indptr[at + 1]}, last);
        const uint32_t degree = this->row_degree()[first + at];
        if (degree > kShortList && fanout(row_kind()[first + at], hop) == kAllNeighbors)
          for (int64_t i = e + lane; i - lane < row_end; i += 32)
            put(first + at, this->row_begin()[first + at], static_cast<P>(i - indptr[at]), static_cast<P>(i),
                i < row_end);
        e = max(e, row_end);
      }
    }
  }

  // The same if each list is taken whole or not at all. Entries are shared out, not rows, most of which are
  // empty where vertices have many relations.
  __device__ void pick_whole_hetero(int hop, int64_t first, int64_t end, int64_t edges) const {
    const P* const indptr = this->indptr(hop);
    const Share groups = share((edges + 31) / 32, this->warps(), this->warp());
    if (groups.begin == groups.end) return;
    const int64_t begin = groups.begin * 32, last = min(edges, groups.end * 32);
    const auto row_with = [&](int64_t from, int64_t e) {
      return first_by_warp(from, end - first, [&](int64_t at) { return indptr[at] <= e; }) - 1;
    };
    const int64_t low = row_with(0, begin), high = row_with(low, last - 1);
    for (int64_t e = begin + lane; e - lane < last; e += 32) {
      const bool valid = e < last;
      const int64_t at = this->row_of(indptr, low, high + 1, valid ? e : begin);
      this->take(hop, this->row_begin()[first + at] + static_cast<P>(e - indptr[at]), static_cast<P>(e),
                 valid);
    }
  }

  // Gives the vertices that `hop` picked and were not there their places; `vertices` becomes their number.
  template <typename Sync>
  __device__ bool take_found(int hop, int64_t& vertices, uint32_t* words, const Sync& sync) const {
    const int64_t before = vertices;
    if constexpr (Sets::kHashed) {
      if (!this->group(hop, vertices, words)) return false;
      sync();
      this->rank(hop, before, vertices, words);
      return true;
    } else {
      this->count(hop, vertices);
      sync();
      int64_t none = 0;
      return this->assign(hop, vertices, none);
    }
  }

  using Sets::row_of;
};

template <int Widest, typename Phases, typename Sync>
__device__ void run_hetero(const Phases& phases, const Sync& sync, unsigned char* stage) {
  using N = typename Phases::Vertex;
  __shared__ Segments found;
  const auto& args = phases.args;
  phases.start();
  phases.check_order();
  int64_t vertices = phases.num_seeds(), first_vertex = 0, rows = 0;
  if (phases.thread() == 0) phases.header().frontiers[0] = vertices;
  bool ok = true;
  for (int hop = 1; ok; ++hop) {
    if constexpr (Phases::kScans)  // it looks at the rows from the first one on
      if (args.once) rows = 0;
    phases.find_segments(found, hop - 1, first_vertex, vertices, rows);
    if (hop > args.hops) break;
    const int64_t made = rows, first = args.once ? rows : 0;
    rows = found.rows[phases.types()];
    ok = rows <= args.rows_capacity && rows - first <= args.row_capacity[hop - 1];
    if (phases.thread() == 0) {
      phases.header().edges[hop - 1] = -1;  // not known yet
      phases.header().hops_done = hop - 1;
      phases.header().counted = rows;
      if (!ok) {
        phases.fail(SampleStatus::kOverflow, 0);
        phases.publish();
      }
    }
    if (!ok) break;
    if constexpr (Phases::kScans) {
      phases.make_rows(found, hop, made, rows);
      sync();
      scan_hetero(phases, hop, rows, stage);
      sync();
      if (phases.thread() == 0) phases.end_scan();
    }
    phases.count_hetero(found, hop, first, made, rows);
    sync();
    int64_t edges = 0;
    ok = ((hop > 1 && !Phases::kScans) || may_assign(phases, Phases::kScans ? hop - 1 : 0)) &&
         phases.assign_hetero(hop, first, rows, edges);
    if (!ok) break;
    sync();
    if constexpr (Phases::kScans)
      ScanPicks<Phases>(phases, hop).pick(rows);
    else if constexpr (Widest != kWide)
      with_width<Widest>(args.fanouts[hop - 1], [&](auto width) {
        phases.template pick_hetero<decltype(width)::value>(hop, first, rows, reinterpret_cast<N*>(stage));
      });
    else if (args.takes_whole >> (hop - 1) & 1)
      phases.pick_whole_hetero(hop, first, rows, edges);
    else
      phases.pick_wide_hetero(hop, first, rows, edges, reinterpret_cast<uint32_t*>(stage));
    sync();
    first_vertex = vertices;
    ok = phases.take_found(hop, vertices, reinterpret_cast<uint32_t*>(stage), sync);
    sync();
  }
  if (ok && phases.thread() == 0) phases.publish();
  if (!ok) sync();
  finish_phases(phases, ok);
}

template <int Widest, typename Phases, typename Args>
__device__ void hetero_block(const Args& args, unsigned char* stage) {
  with_own_batch<Phases>(args, [&](const Phases& phases) {
    const auto sync = [&] { group_barrier(&phases.state().barrier.value, phases.block, phases.blocks); };
    run_hetero<Widest>(phases, sync, stage);
  });
}

}  // namespace loader
