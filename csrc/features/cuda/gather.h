// Rows of a table by id, on the GPU. Raw addresses and a stream in, error code out.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace loader {

enum class ElementType : int { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };

// Where the rows lie, which decides how a kernel walks over them.
enum class Placement : int { kDevice = 0, kHost = 1, kCached = 2 };

// What a row is. Without `convert` a row is `in_bytes` bytes to be copied, whatever they mean.
struct RowFormat {
  bool convert;
  ElementType from, to;
  int64_t in_bytes, out_bytes;
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
  int blocks;  // kHost, kCached: thread blocks that read over the bus at a time; 0 for the default
  // kHost, kCached: `gather_scratch` bytes of device memory, in which an order is made that the rows are read
  // in; null to read them in that of `ids`.
  void* scratch;
  const uint32_t* positions;  // set by the launch: [n], of the ids, in the order of reading
};

// Ids that a gather needs at least for its rows to be read in another order than `ids` has, so that it
// pays; and device memory for that.
int64_t gather_order_from(int64_t table_bytes, Placement placement);
size_t gather_scratch(int64_t n, Placement placement);

// Launches out[i] = table[ids[i]] on `stream`.
cudaError_t launch_gather(GatherArgs args, const RowFormat& format, Placement placement, cudaStream_t stream);

}  // namespace loader
