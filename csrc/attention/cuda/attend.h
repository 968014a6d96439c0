// Attention over the entries of rows on the GPU, and its gradients: for each head, scores of the entries,
// their softmax, and the sum of the sources' rows by it. No array of entries times columns; raw device
// pointers and a stream in; nothing waits for the host. Sums are in float32, in a fixed order.
//
// The score of entry e of row i is leaky(x[entries[e]] . source + sink[i]), where leaky multiplies what is
// below 0 by `slope`. Index arrays are trusted.
#pragma once

#include <cstdint>

#include "aggregate/cuda/mean.h"
#include "gpu/stream.h"

namespace loader {

// Threads of a block; heads that a warp works on at once, and entries.
constexpr int kAttendThreads = 256, kHeadsAtOnce = 4, kEntriesAtOnce = 8;

// Rows of one relation. `dim` is a multiple of 16 bytes of x, as `apart` and what is in `at` are.
template <typename T>
struct AttendedRows {
  const int32_t* indptr;   // of all rows
  const int32_t* entries;  // the row of x that an entry reads
  const int64_t* order;    // [count] which rows
  const int64_t* at;       // [count] the element of the packed sums at which those of its first head begin
  int64_t count, apart;    // elements from a head to the next
  int heads;
  int64_t dim;
  float slope;
  bool tensor_cores;  // may be used, where T and the GPU allow it
  StridedRows<const T> x;
};

// Writes the sums, 0 for an empty row, and of each entry its share of each head, negative where the score is
// not above 0.
template <typename T>
struct AttendForward : AttendedRows<T> {
  const float* source;  // [heads, dim]
  const float* sink;    // [all rows, heads]
  float* shares;        // [entries, heads]
  T* out;
};

// Writes the gradients of the scores, before `leaky`; their sums by row, and their sums times the rows of x,
// of which each block has a part.
template <typename T>
struct AttendBackward : AttendedRows<T> {
  const float* shares;
  const T* grad;
  float* scores;  // [entries, heads]
  float* sink;    // [all rows, heads]
  float* source;  // [parts, heads, dim]
  int64_t parts;
};

// Writes the gradient of x, from the entries in the order of their sources, and of relations that are all of
// one width.
template <typename T>
struct AttendSources {
  const int32_t* begins;    // [sources + 1] in `sorted`
  const int32_t* sorted;    // entries
  const int32_t* limit;     // one number: entries from it on do not count
  const int32_t* row_of;    // [entries]
  const int32_t* relation;  // [all rows]
  const int64_t* at;        // [all rows]
  const int64_t* apart;     // [relations]
  const float* source;      // [relations, heads, dim]
  const float *shares, *scores;
  const T* grad;
  T* out;  // [sources, dim]
  int64_t sources, dim;
  int heads;
};

// How many parts of the gradient of `source` there are.
template <typename T>
int64_t attend_parts(const AttendedRows<T>& rows, int device);

// On a stream of `device`, whose context is the current one; throw as the other launches do.
template <typename T>
void launch_attend(const AttendForward<T>& args, int device, gpu::Stream stream);
template <typename T>
void launch_attend_gradient(const AttendBackward<T>& args, int device, gpu::Stream stream);
template <typename T>
void launch_attend_sources(const AttendSources<T>& args, int device, gpu::Stream stream);

}  // namespace loader
