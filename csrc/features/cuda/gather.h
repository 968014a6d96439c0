// Rows of a table by id, on the GPU: what the kernels take, and their launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/stream.h"
#include "scaled_codes.h"

namespace loader {

enum class ElementType : int { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };

// Where the rows lie, which decides how a kernel walks over them.
enum class Placement : int { kDevice = 0, kHost = 1, kCached = 2 };

// What a row is. Without `convert` a row is `in_bytes` bytes to be copied, whatever they mean.
struct RowFormat {
  bool convert;
  ElementType from, to;
  int64_t in_bytes, out_bytes;
  bool coded = false;  // rows of codes, which are decoded to `to`
  CodedRows codes{};   // their scales lie in device memory; columns == in_bytes
  int64_t pitch = 0;   // bytes from one of them to the next
};

// What kernels tell the host without its waiting. In pinned host memory.
struct Notes {
  int64_t bad_id;      // out of range
  int64_t position;    // ids[position] was the id
  int64_t bad_raised;  // 0: there was none; written after these two
  int64_t in_order;    // whether the ids lay in order, roughly, when it was last asked
};

struct GatherArgs {
  const uint8_t* table;  // num_rows rows, back to back, in device or (as seen by the GPU) pinned host memory
  int64_t num_rows;
  const uint8_t* cache;      // kCached: some of the rows, in device memory
  const int32_t* slots;      // kCached: [num_rows], where in `cache` a row is, or -1
  unsigned long long* hits;  // kCached: how many rows were found in `cache`, added to
  const void* ids;           // [n] int32 or, with `wide_ids`, int64
  bool wide_ids;
  int64_t n;
  uint8_t* out;          // [n] rows; those of ids out of range are zeros
  unsigned int* raised;  // device memory: whether a bad id was noted
  Notes* notes;
  int blocks;            // kHost, kCached: thread blocks that read over the bus at a time; 0 for the default
  int64_t misses_below;  // kCached: rows that are not in the cache, of ids from this on, are left as they are
  // kHost, kCached: `gather_scratch` bytes of device memory, in which an order is made that the rows are read
  // in; null to read them in that of `ids`.
  void* scratch;
  const uint32_t* positions;  // set by the launch: [n], of the ids, in the order of reading
  // kCached: what `launch_mark_misses` wrote, to read these rows only; null to read all, as `slots` says.
  const uint32_t* marks;
};

// What a gather of codes needs on top.
struct CodedArgs : GatherArgs {
  Scales scales;
  int64_t pitch;  // bytes from one row of the table, or of the cache, to the next
};

// A counting sort of ids into buckets of equally many rows, see order.cuh.
constexpr int kOrderThreads = 1024, kIdsAThread = 8;
constexpr int kBuckets = kOrderThreads;  // a thread of the last block to count has one each
constexpr int64_t kIdsABlock = int64_t{kOrderThreads} * kIdsAThread;
constexpr int64_t kMostInOrder = UINT32_MAX;

struct Order {
  uint32_t begins[kBuckets];  // of each bucket in `positions`; counts before, ends afterwards
  uint32_t changes;           // ids in another bucket than the one before
  uint32_t counted;           // blocks that are done with counting
};

// Bytes of one request to memory, and threads of a warp.
constexpr int kLineBytes = 128, kWarp = 32;

// The bytes of a row that one group of threads reads at once, and the threads of a group.
template <int UnitBytes>
struct Group {
  static constexpr int kUnit = UnitBytes;
  static constexpr int kSegment = kLineBytes < kWarp * kUnit ? kLineBytes : kWarp * kUnit;
  static constexpr int kLanes = kSegment / kUnit;
};

// Division by a number that is the same for all threads. Exact while dividend * divisor < 2^32.
struct Divisor {
  uint32_t divisor, magic;
};

// How the rows of a gather are dealt out: a block takes `rows` of them at a time, of `parts` parts each.
struct Tiling {
  int64_t rows;
  uint32_t parts;
  Divisor by_parts;
};

// Of a gather with a cache: the first `blocks` of the grid read what is not cached. Each looks at `rows` ids
// at a time: at most one per thread, and few enough that 32 bits count their lines.
struct MissBlocks {
  uint32_t blocks, rows;
};
constexpr int kMissLoads = 2;  // loads of one thread under way at once

// Ids of rows that are not in the cache, see `find_misses`. In device memory.
constexpr int kMissRanges = 256;
struct MissIds {
  void* ids;           // [n] int32 or int64, as those of the gather
  int64_t* positions;  // [n], where in the gather they are
  // [2 + kMissRanges], zeros: how many there are; whether an id is out of range; and of all ids of rows that
  // are not in the cache, how many lie in each range of `rows_a_range` rows.
  unsigned long long* counts;
  int64_t rows_a_range;
};

// Ids that a gather needs at least for its rows to be read in another order than `ids` has, so that it
// pays; and device memory for that.
int64_t gather_order_from(int64_t table_bytes, Placement placement);
size_t gather_scratch(int64_t n, Placement placement);

// Finds the ids from `from` on whose rows are not in the cache, and counts. Launches and throws as
// `launch_gather`.
void launch_find_misses(const GatherArgs& args, int64_t from, const MissIds& to, int device,
                        gpu::Stream stream);

// A gather with a cache in three parts, which may be on streams of their own: this marks what is not in the
// cache, a bit per id in [(n + 31) / 32] words. `launch_gather` with these marks reads that over the bus, and
// with a `misses_below` of 0 the rest. So the cache may change while the bus is read, once the rest has been
// read. Ids out of range belong to the part with marks. Launches and throws as `launch_gather`.
void launch_mark_misses(const GatherArgs& args, uint32_t* marks, int device, gpu::Stream stream);

// Launches out[i] = table[ids[i]] on a stream of `device`, whose context is the current one. Throws
// std::runtime_error if a kernel cannot be compiled or a launch is refused.
void launch_gather(GatherArgs args, const RowFormat& format, Placement placement, int device,
                   gpu::Stream stream);

}  // namespace loader
