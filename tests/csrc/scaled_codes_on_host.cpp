// The kernels that read rows of codes as a module of the host: gathers and the mean over neighbors, with a
// stand-in for CUDA. Arrays come as addresses; the test owns them.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <stdexcept>

#include "device_code.h"
// The stand-in above comes first; what it lacks of these kernels follows.
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline unsigned atomicExch(unsigned* at, unsigned value) {
  return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned by) {
  const unsigned lane = on_host::lane();
  return on_host::exchange(value,
                           [&](const uint64_t* values) { return values[lane + by > 31 ? lane : lane + by]; });
}
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
#include "aggregate/cuda/sum_plain_rows.cuh"
#include "aggregate/cuda/sum_rows.cuh"
#include "features/cuda/gather_kernels.cuh"

namespace loader {
namespace {

constexpr int kThreads = 128;

template <typename T>
T* at(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// placement: as Placement has it. `cache`, `slots`, `hits`: of a table with a cache.
struct Gather {
  int placement, count, blocks;
  CodedArgs args;
  int64_t columns;
};

template <typename Unit>
void run(const Gather& g) {
  const auto tiling = [](int64_t parts, int64_t a_tile) {
    const auto n = static_cast<uint32_t>(parts);
    return Tiling{std::max<int64_t>(1, a_tile / parts), n, {n, n > 1 ? 0xffffffffu / n + 1 : 0}};
  };
  constexpr int kUnit = sizeof(typename Unit::In);
  if (g.placement == 0) {
    const Tiling tiles = tiling(g.columns / kUnit, kThreads * 4);
    const auto grid = static_cast<unsigned>((g.args.n + tiles.rows - 1) / tiles.rows);
    return on_host::run_grid(grid, kThreads, 0, [&] { by_output<Unit, kThreads, 4>(g.args, tiles); });
  }
  constexpr int kSegment = Group<kUnit>::kSegment, kGroups = kThreads / Group<kUnit>::kLanes;
  const Tiling tiles = tiling((g.columns + 2 * kSegment - 2) / kSegment, kGroups * 2);
  if (g.placement == 1)
    return on_host::run_grid(g.blocks, kThreads, 0, [&] {
      by_line<Unit, false, kThreads, 2>(g.args, tiles, g.columns, MissBlocks{});
    });
  const MissBlocks misses{1, 32};
  on_host::run_grid(g.blocks + 1, kThreads, 0,
                    [&] { by_line<Unit, true, kThreads, 4>(g.args, tiles, g.columns, misses); });
}

template <typename From, typename To>
void run_counts(const Gather& g) {
  if (g.count == 4) return run<Decoded<From, To, 4>>(g);
  if (g.count == 2) return run<Decoded<From, To, 2>>(g);
  run<Decoded<From, To, 1>>(g);
}

void gather(const std::string& code, bool narrow, int placement, int count, int blocks, uintptr_t table,
            int64_t num_rows, int64_t pitch, int64_t columns, uintptr_t scales, bool by_row, uintptr_t cache,
            uintptr_t slots, uintptr_t hits, uintptr_t ids, int64_t n, uintptr_t out, uintptr_t raised,
            uintptr_t notes) {
  Gather g{placement, count, blocks, {}, columns};
  g.args.table = at<uint8_t>(table);
  g.args.num_rows = num_rows;
  g.args.cache = at<uint8_t>(cache);
  g.args.slots = at<int32_t>(slots);
  g.args.hits = at<unsigned long long>(hits);
  g.args.ids = at<void>(ids);
  g.args.wide_ids = true;
  g.args.n = n;
  g.args.out = at<uint8_t>(out);
  g.args.raised = at<unsigned int>(raised);
  g.args.notes = at<Notes>(notes);
  g.args.misses_below = INT64_MAX;
  g.args.scales = {at<float>(scales), by_row};
  g.args.pitch = pitch;
  const bool is_int8 = code == "int8";
  if (narrow) return is_int8 ? run_counts<int8, bfloat16>(g) : run_counts<float8, bfloat16>(g);
  return is_int8 ? run_counts<int8, float>(g) : run_counts<float8, float>(g);
}

template <typename Pass>
bool takes_turns(const Pass& pass) {
  return pass.block.sums || pass.block.order != nullptr;
}

template <int N, typename T>
void run_mean(MeanPass<int32_t, int32_t, T, float> pass, int rows_per_group, int log_lanes) {
  std::vector<int64_t> rows(pass.rows + 1);
  unsigned long long count = 0;
  const LongRows long_rows{&count, rows.data()};
  const int64_t a_block = (kShortThreads >> log_lanes) * int64_t{rows_per_group};
  const auto grid = static_cast<unsigned>((pass.rows + a_block - 1) / a_block);
  const bool in_turns = takes_turns(pass);
  on_host::run_grid(grid, kShortThreads, 0,
                    [&] { sum_short_rows<N>(pass, long_rows, log_lanes, rows_per_group, in_turns); });
  on_host::run_grid(2, kLongThreads, 0, [&] { sum_long_rows<N>(pass, long_rows); });
}

template <typename T>
void run_plain(MeanPass<int32_t, int32_t, T, float> pass, int rows_per_warp) {
  std::vector<int64_t> rows(pass.rows + 1);
  unsigned long long count = 0;
  const LongRows long_rows{&count, rows.data()};
  const int64_t a_block = kShortThreads / 32 * int64_t{rows_per_warp};
  on_host::run_grid(static_cast<unsigned>((pass.rows + a_block - 1) / a_block), kShortThreads, 0,
                    [&] { sum_plain_rows(pass, long_rows, rows_per_warp, takes_turns(pass)); });
  std::sort(rows.begin(), rows.begin() + static_cast<int64_t>(count));
  if (std::adjacent_find(rows.begin(), rows.begin() + static_cast<int64_t>(count)) !=
      rows.begin() + static_cast<int64_t>(count))
    throw std::logic_error("a long row is listed twice");
  on_host::run_grid(2, kLongThreads, 0, [&] { sum_long_rows<kPlainColumns>(pass, long_rows); });
}

// The mean over rows `nodes[indices[e]]` of a table, and the destinations' own rows before it, as
// launch_mean_forward has them; `code`: "float32" of a table of floats; `width` 0: by a warp for some rows;
// `sums`: the sum in place of the mean, without own rows.
void mean(const std::string& code, int width, uintptr_t indptr, uintptr_t indices, int64_t num_dst,
          int64_t num_src, int64_t num_edges, uintptr_t table, int64_t stride, uintptr_t nodes, int64_t dim,
          uintptr_t scales, bool by_row, uintptr_t out, bool relu, uint32_t threshold, int rows_per_group,
          int log_lanes, uintptr_t order, uintptr_t places, bool sums) {
  const auto run = [&](auto type) {
    using T = decltype(type);
    MeanPass<int32_t, int32_t, T, float> pass;
    const Activation f{relu, threshold, 77, 65536.0 / (65536 - threshold)};
    const int64_t wide = 2 * dim;
    static_cast<MeanArgs<int32_t, int32_t, T, float>&>(pass) = {
        {at<int32_t>(indptr), at<int32_t>(indices), num_dst, num_src, num_edges},
        {at<T>(table), stride},
        at<int32_t>(nodes),
        {at<float>(out) + dim, wide},
        {at<float>(out), wide},
        0,
        f,
        f.identity(),
        dim,
        num_dst};
    pass.block.sums = sums;
    if (sums) pass.own = {};
    if (order) {
      pass.block.order = at<int64_t>(order);
      pass.block.at = at<int64_t>(places);
      pass.mean.data -= dim;  // they say where a row begins
      pass.own = {};
    }
    if constexpr (kIsCode<T>) pass.scales = {at<float>(scales), by_row};
    if (width == 0) return run_plain<T>(pass, rows_per_group);
    if (width == 4) return run_mean<4, T>(pass, rows_per_group, log_lanes);
    run_mean<1, T>(pass, rows_per_group, log_lanes);
  };
  if (code == "int8") return run(int8{});
  if (code == "float8") return run(float8{});
  run(float{});
}

}  // namespace
}  // namespace loader

PYBIND11_MODULE(scaled_codes_on_host, m) {
  m.def("gather", &loader::gather);
  m.def("mean", &loader::mean);
}
