// A cache of rows that takes in what the next gathers need: what the kernels take, and their launch.
//
// A group of gathers is known ahead, so it is known when each row is read next. After each gather, of the
// rows that are cached and those that came over the bus the ones stay that the next gathers need, the soonest
// first, and after them those that are hot. This is Belady's rule (IBM Systems Journal 5(2), 1966) as far as
// the group goes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/stream.h"

namespace loader::gpu {
class Fence;
}  // namespace loader::gpu

namespace loader {

constexpr int kRenewalThreads = 1024;
constexpr int kMostTogether = 16;  // gathers of a group

// Of a row: the highest bit says whether it is hot, the others hold the number in its group of the gather
// that reads it next.
constexpr uint8_t kHotRow = 0x80, kUse = 0x7f, kNoUse = kUse;
constexpr int64_t kUsesAWord = 4;

// How much a row is worth keeping, the best first: needed by the next gather, by the one after it, ...; hot;
// neither.
constexpr int kHotClass = kMostTogether, kClasses = kMostTogether + 2;

// The owner of a slot that is of no use: its row is in another slot, too.
constexpr uint32_t kNobody = 0xffffffff;

// Rows of each class: those that are cached, and behind them the others. And how many were written to the
// lists of `RowCache` so far: of the classes that all go or come, and of the one of which a part does.
struct Tally {
  uint32_t rows[2 * kClasses];
  uint32_t leaving[2], coming[2];
};

// All in device memory.
struct RowCache {
  uint8_t* rows;      // [count] rows, back to back
  int32_t* slots;     // [num_rows], where in `rows` a row is, or -1
  uint32_t* owners;   // [count], the row of each slot, or kNobody
  uint8_t* uses;      // [num_rows], filled up to whole words
  uint32_t* leaving;  // [count], slots whose rows are not kept
  uint32_t* coming;   // [count], where in a gather the rows are that take their places
  Tally* tally;
  int64_t num_rows, row_bytes;
  uint32_t count;
};

// One gather of a group.
struct Reading {
  const void* ids;  // [n] int32 or, with `wide_ids`, int64; those out of range are passed over
  bool wide_ids;
  int64_t n;
  uint8_t* next;        // [n]: the gather of the group that reads each row next, or kNoUse
  uint8_t turn;         // the number of this gather, below kMostTogether
  const uint8_t* rows;  // [n] rows, what it read
};

// A group begins: no row has a use.
void launch_forget_uses(const RowCache& cache, int device, gpu::Stream stream);

// Writes down the uses of a gather. Those of a group are to be noted from the last one to the first one.
void launch_note_uses(const RowCache& cache, const Reading& reading, int device, gpu::Stream stream);

// What a renewal works on. Which rows go and come depends on no row, so it is chosen while the bus is read.
struct RenewalStreams {
  gpu::Stream choice;  // also of the two functions above, and of `launch_mark_misses`
  gpu::Stream bus;     // what of the gather comes over the bus
  gpu::Stream rows;    // what of it was cached; and, after both, the copies of the rows that come
};

// A gather's cached rows are being read: keeps the rows that are worth most. `rows` of the streams has all
// rows of the gather then, and the next one may read the cache there. All three launch on streams of
// `device`, whose context is the current one, and throw std::runtime_error if a kernel cannot be compiled or
// a launch is refused. Calls for one cache, and the gathers that read it, must follow one another.
void launch_renewal(const RowCache& cache, const Reading& reading, int device, const RenewalStreams& streams,
                    gpu::Fence& fence);

}  // namespace loader
