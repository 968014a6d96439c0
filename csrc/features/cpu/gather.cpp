#include "features/gather.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "disk/read_ahead.h"
#include "features/cpu/convert.h"
#include "wide_simd.h"

namespace loader {
namespace {

constexpr int64_t kLine = 64;                // bytes of a cache line
constexpr int64_t kAheadBytes = 4096;        // rows to come that are asked for ahead of their copy
constexpr int64_t kMaxAheadRows = 32;        // short rows: more outstanding lines than a core can wait for
constexpr int64_t kMaxRowLines = 16;         // of a long row; the hardware follows the rest by itself
constexpr int64_t kMinShareBytes = 1 << 16;  // less is copied before a second worker has woken up
constexpr int64_t kMinPartBytes = 1 << 14;   // that a worker copies before it looks for more
constexpr int64_t kMaxPartBytes = 1 << 17;
constexpr int64_t kPartsPerWorker = 4;
constexpr int64_t kCheckedIds = 1 << 15;  // in the time of less, a second worker does not wake up

// Whether one of the ids begin .. end-1 is out of range.
template <typename Id>
bool any_bad(int64_t num_rows, const Id* ids, int64_t begin, int64_t end) {
  using Unsigned = std::make_unsigned_t<Id>;  // a negative id becomes a large one: a single comparison
  bool bad = false;
  for (int64_t i = begin; i < end; ++i)
    bad |= static_cast<Unsigned>(ids[i]) >= static_cast<uint64_t>(num_rows);
  return bad;
}

}  // namespace

template <typename Id>
void check_ids(ThreadPool& pool, int64_t num_rows, const Id* ids, int64_t n) {
  std::atomic<bool> found{false};
  pool.share(n, kCheckedIds, [&](int64_t begin, int64_t end) {
    if (any_bad(num_rows, ids, begin, end)) found.store(true, std::memory_order_relaxed);
  });
  if (!found.load(std::memory_order_relaxed)) return;
  for (int64_t i = 0; i < n; ++i)
    if (any_bad(num_rows, ids, i, i + 1))
      throw std::invalid_argument("ids[" + std::to_string(i) + "] is " + std::to_string(ids[i]) +
                                  "; the table has " + std::to_string(num_rows) +
                                  " rows, valid ids are 0 to " + std::to_string(num_rows - 1));
}

namespace {

inline void prefetch_row(const uint8_t* row, int64_t lines) {
  for (int64_t l = 0; l < lines; ++l) __builtin_prefetch(row + l * kLine, 0, 0);
}

#if defined(__x86_64__)
// Copies past the caches. `to` and `bytes` are multiples of 16; a fence has to follow the last row.
inline void stream_row(uint8_t* to, const uint8_t* from, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + b),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + b)));
}
#endif

// Calls put(i, row) for the rows begin .. end-1 of a gather, whose memory was asked for ahead.
template <typename Id, typename Put>
LOADER_INLINE void visit_rows(const RowTable& table, const Id* ids, int64_t begin, int64_t end,
                              const Put& put) {
  const int64_t bytes = table.row_bytes;
  // A row that does not begin on a line touches one line more than its length says.
  const int64_t lines = std::min((bytes + kLine - 1) / kLine + (bytes % kLine != 0), kMaxRowLines);
  const int64_t distance = std::clamp(kAheadBytes / bytes, int64_t{2}, kMaxAheadRows);
  auto row = [&](int64_t i) { return table.data + static_cast<int64_t>(ids[i]) * bytes; };
  PagesAhead ahead(table.in_file);
  if (ahead.asks()) {
    for (int64_t i = begin; i < end; ++i) ahead.ask(row(i), bytes);
    ahead.flush();
  }
  for (int64_t i = begin; i < std::min(begin + distance, end); ++i) prefetch_row(row(i), lines);
  for (int64_t i = begin; i < end; ++i) {
    if (i + distance < end) prefetch_row(row(i + distance), lines);
    put(i, row(i));
  }
  ahead.done(end - begin);
}

template <typename Id>
void copy_rows(const RowTable& table, const Id* ids, int64_t begin, int64_t end, uint8_t* out,
               Reader reader) {
  const int64_t bytes = table.row_bytes;
#if defined(__x86_64__)
  if (reader == Reader::kDevice &&
      (bytes | static_cast<int64_t>(reinterpret_cast<uintptr_t>(out))) % 16 == 0) {
    visit_rows(table, ids, begin, end,
               [&](int64_t i, const uint8_t* from) { stream_row(out + i * bytes, from, bytes); });
    return _mm_sfence();
  }
#endif
  visit_rows(table, ids, begin, end, [&](int64_t i, const uint8_t* from) {
    std::memcpy(out + i * bytes, from, static_cast<size_t>(bytes));
  });
}

struct Unscaled {
  LOADER_INLINE float operator()(float value, int64_t) const { return value; }
};
struct ScaledByColumn {
  const float* of;
  LOADER_INLINE float operator()(float value, int64_t c) const { return scaled(value, of[c]); }
};
struct ScaledByRow {
  float of;
  LOADER_INLINE float operator()(float value, int64_t) const { return scaled(value, of); }
};

template <typename From, typename To, typename Scale>
LOADER_INLINE void convert_row(const uint8_t* from, int64_t columns, const Scale& scale, To* __restrict to) {
  const From* const row = reinterpret_cast<const From*>(from);
  for (int64_t c = 0; c < columns; ++c) to[c] = number_of<To>(scale(value_of(row[c]), c));
}

template <typename From, typename To, typename Id>
LOADER_INLINE void convert_rows(const RowTable& table, const Conversion& by, const Id* ids, int64_t begin,
                                int64_t end, uint8_t* to) {
  const float* const scales = by.scales.of;
  To* const out = reinterpret_cast<To*>(to);
  if constexpr (!kIsCode<From>) {
    visit_rows(table, ids, begin, end, [&](int64_t i, const uint8_t* from) LOADER_INLINED {
      convert_row<From>(from, by.columns, Unscaled{}, out + i * by.columns);
    });
  } else if (by.scales.by_row) {
    visit_rows(table, ids, begin, end, [&](int64_t i, const uint8_t* from) LOADER_INLINED {
      convert_row<From>(from, by.columns, ScaledByRow{scales[ids[i]]}, out + i * by.columns);
    });
  } else {
    visit_rows(table, ids, begin, end, [&](int64_t i, const uint8_t* from) LOADER_INLINED {
      convert_row<From>(from, by.columns, ScaledByColumn{scales}, out + i * by.columns);
    });
  }
}

template <typename From, typename To, typename Id>
void convert_rows_plain(const RowTable& table, const Conversion& by, const Id* ids, int64_t begin,
                        int64_t end, uint8_t* out) {
  convert_rows<From, To>(table, by, ids, begin, end, out);
}

#ifdef LOADER_AVX2
template <typename From, typename To, typename Id>
LOADER_AVX2 void convert_rows_avx2(const RowTable& table, const Conversion& by, const Id* ids, int64_t begin,
                                   int64_t end, uint8_t* out) {
  convert_rows<From, To>(table, by, ids, begin, end, out);
}
#endif

template <typename Id>
using Converter = void(const RowTable&, const Conversion&, const Id*, int64_t, int64_t, uint8_t*);

template <typename From, typename To, typename Id>
Converter<Id>* converter() {
#ifdef LOADER_AVX2
  if (__builtin_cpu_supports("avx2")) return convert_rows_avx2<From, To, Id>;
#endif
  return convert_rows_plain<From, To, Id>;
}

template <typename From, typename Id>
Converter<Id>* converter_to(Element to) {
  if (to == Element::kFloat16) return converter<From, half, Id>();
  if (to == Element::kBfloat16) return converter<From, bfloat16, Id>();
  return converter<From, float, Id>();
}

template <typename Id>
Converter<Id>* converter_of(Element from, Element to) {
  switch (from) {
    case Element::kFloat16:
      return converter_to<half, Id>(to);
    case Element::kBfloat16:
      return converter_to<bfloat16, Id>(to);
    case Element::kInt8:
      return converter_to<int8, Id>(to);
    case Element::kFloat8:
      return converter_to<float8, Id>(to);
    default:
      return converter_to<float, Id>(to);
  }
}

// How far apart two parts are that are taken one after the other. Any few of them in a row then lie all over
// the work (multiples of the golden ratio modulo 1 are spread evenly), and each part is taken once.
int64_t stride_of(int64_t parts) {
  auto stride = static_cast<int64_t>(0.618 * static_cast<double>(parts));
  while (stride > 1 && std::gcd(stride, parts) != 1) --stride;
  return std::max<int64_t>(stride, 1);
}

}  // namespace

namespace {

// Shares the rows 0 .. n-1 of a gather out among the workers: f(begin, end). `row_bytes`: what is moved of a
// row.
template <typename F>
void share_rows(ThreadPool& pool, int64_t n, int64_t row_bytes, bool in_file, const F& f) {
  if (pool.size() == 1 || n * row_bytes < 2 * kMinShareBytes) return f(0, n);
  const int64_t bytes =
      std::clamp(n * row_bytes / (kPartsPerWorker * pool.size()), kMinPartBytes, kMaxPartBytes);
  const int64_t rows = std::max({bytes / row_bytes, n / kMaxParts + 1, int64_t{1}});
  const int64_t parts = (n + rows - 1) / rows;
  // Ids of a mini-batch ascend. Were parts taken from the front, all threads would read one narrow region of
  // the table at a time, from a few of the memory's channels. A file is read best from the front.
  const int64_t stride = in_file ? 1 : stride_of(parts);
  pool.each(parts, [&](int part, int) {
    const int64_t begin = part * stride % parts * rows;
    f(begin, std::min(begin + rows, n));
  });
}

}  // namespace

template <typename Id>
void gather_rows(ThreadPool& pool, const RowTable& table, const Id* ids, int64_t n, uint8_t* out,
                 Reader reader) {
  check_ids(pool, table.num_rows, ids, n);
  if (n == 0 || table.row_bytes == 0) return;
  share_rows(pool, n, table.row_bytes, table.in_file,
             [&](int64_t begin, int64_t end) { copy_rows(table, ids, begin, end, out, reader); });
}

template <typename Id>
void gather_converted(ThreadPool& pool, const RowTable& table, const Conversion& by, const Id* ids, int64_t n,
                      uint8_t* out) {
  check_ids(pool, table.num_rows, ids, n);
  if (n == 0 || by.columns == 0) return;
  auto* const convert = converter_of<Id>(by.from, by.to);
  share_rows(pool, n, by.columns * bytes_of(by.to), table.in_file,
             [&](int64_t begin, int64_t end) { convert(table, by, ids, begin, end, out); });
}

#define LOADER_GATHER_OF(Id)                                                                              \
  template void check_ids<Id>(ThreadPool&, int64_t, const Id*, int64_t);                                  \
  template void gather_rows<Id>(ThreadPool&, const RowTable&, const Id*, int64_t, uint8_t*, Reader);      \
  template void gather_converted<Id>(ThreadPool&, const RowTable&, const Conversion&, const Id*, int64_t, \
                                     uint8_t*);
LOADER_GATHER_OF(int32_t)
LOADER_GATHER_OF(int64_t)
#undef LOADER_GATHER_OF

}  // namespace loader
