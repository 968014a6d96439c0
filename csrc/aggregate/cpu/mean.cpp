#include "aggregate/mean.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>

#include "wide_simd.h"

#if defined(__GNUC__)
#define LOADER_PREFETCH(address) __builtin_prefetch(address)
#else
#define LOADER_PREFETCH(address) (void)(address)
#endif

namespace loader {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kPrefetchBytes = 8192;  // how far ahead of the sum rows are requested
constexpr int64_t kSlicesPerThread = 16;  // threads draw slices, so that a busy core does less of the work
// Below these, one thread is done before others have come: with torch's own threads still spinning on the
// cores, waking ours takes up to a millisecond.
constexpr int64_t kSerialElements = 1 << 21;  // elements summed
constexpr int64_t kSerialChecks = 1 << 21;    // numbers checked
constexpr int64_t kSerialSort = 1 << 16;      // edges transposed

// One row: out = sum over the row's edges of weights[index] * x[index], or without weights the mean of
// x[index]. Four source rows a pass: `out` stays in L1 and is written once for four reads. A mean is scaled
// after the sum: before, a subnormal number would lose what the sum of several of them keeps.
template <bool Weighted, typename I, typename T>
LOADER_INLINE void sum_row(const I* index, int64_t n, const T* weights, const T* x, int64_t dim,
                           T* __restrict out) {
  const auto row = [&](int64_t e) { return x + static_cast<int64_t>(index[e]) * dim; };
  const auto weight = [&](int64_t e) { return Weighted ? weights[index[e]] : T(1); };
  // What the sum of the first `count` edges is multiplied by: the last pass makes it a mean.
  const auto scale = [&](int64_t count) { return Weighted || count < n ? T(1) : T(1) / static_cast<T>(n); };
  if (n == 0) {
    for (int64_t f = 0; f < dim; ++f) out[f] = T(0);
    return;
  }
  int64_t e = n % 4;
  if (e == 1) {
    const T* a = row(0);
    const T u = weight(0);
    for (int64_t f = 0; f < dim; ++f) out[f] = u * a[f];
  } else if (e == 2) {
    const T *a = row(0), *b = row(1);
    const T u = weight(0), v = weight(1), s = scale(2);
    for (int64_t f = 0; f < dim; ++f) out[f] = (u * a[f] + v * b[f]) * s;
  } else if (e == 3) {
    const T *a = row(0), *b = row(1), *c = row(2);
    const T u = weight(0), v = weight(1), w = weight(2), s = scale(3);
    for (int64_t f = 0; f < dim; ++f) out[f] = (u * a[f] + v * b[f] + w * c[f]) * s;
  } else {
    const T *a = row(0), *b = row(1), *c = row(2), *d = row(3);
    const T u = weight(0), v = weight(1), w = weight(2), z = weight(3), s = scale(4);
    for (int64_t f = 0; f < dim; ++f) out[f] = ((u * a[f] + v * b[f]) + (w * c[f] + z * d[f])) * s;
    e = 4;
  }
  for (; e < n; e += 4) {
    const T *a = row(e), *b = row(e + 1), *c = row(e + 2), *d = row(e + 3);
    const T u = weight(e), v = weight(e + 1), w = weight(e + 2), z = weight(e + 3), s = scale(e + 4);
    for (int64_t f = 0; f < dim; ++f) out[f] = (out[f] + ((u * a[f] + v * b[f]) + (w * c[f] + z * d[f]))) * s;
  }
}

// Rows [begin, end).
template <bool Weighted, typename P, typename I, typename T>
LOADER_INLINE void sum_rows(const P* indptr, const I* indices, const T* weights, const T* x, int64_t dim,
                            T* out, int64_t begin, int64_t end) {
  const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(T));
  const int64_t distance = std::clamp<int64_t>(kPrefetchBytes / std::max<int64_t>(row_bytes, 1), 1, 64);
  const int64_t lines = std::min(row_bytes, kPrefetchBytes);
  const int64_t last = indptr[end];
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = indptr[i], n = indptr[i + 1] - first;
    for (int64_t e = first + distance, stop = std::min(first + n + distance, last); e < stop; ++e) {
      const char* row = reinterpret_cast<const char*>(x + static_cast<int64_t>(indices[e]) * dim);
      for (int64_t b = 0; b < lines; b += kLineBytes) LOADER_PREFETCH(row + b);
    }
    sum_row<Weighted>(indices + first, n, weights, x, dim, out + i * dim);
  }
}

template <bool Weighted, typename P, typename I, typename T>
void sum_rows_plain(const P* indptr, const I* indices, const T* weights, const T* x, int64_t dim, T* out,
                    int64_t begin, int64_t end) {
  sum_rows<Weighted>(indptr, indices, weights, x, dim, out, begin, end);
}

#ifdef LOADER_AVX2
template <bool Weighted, typename P, typename I, typename T>
LOADER_AVX2 void sum_rows_avx2(const P* indptr, const I* indices, const T* weights, const T* x, int64_t dim,
                               T* out, int64_t begin, int64_t end) {
  sum_rows<Weighted>(indptr, indices, weights, x, dim, out, begin, end);
}
#endif

// Where slice k of `slices` begins, so that slices have about equal numbers of rows and edges together.
template <typename P>
int64_t slice_begin(const P* indptr, int64_t num_rows, int64_t k, int64_t slices) {
  const auto cost = [&](int64_t row) { return static_cast<int64_t>(indptr[row]) + row; };
  const int64_t wanted = cost(num_rows) / slices * k + cost(num_rows) % slices * k / slices;
  int64_t low = 0, high = num_rows;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (cost(middle) < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return k == slices ? num_rows : low;
}

template <bool Weighted, typename P, typename I, typename T>
void sum_all_rows(const P* indptr, const I* indices, const T* weights, const T* x, int64_t dim, T* out,
                  int64_t num_rows, ThreadPool& pool) {
  auto* rows = sum_rows_plain<Weighted, P, I, T>;
#ifdef LOADER_AVX2
  if (__builtin_cpu_supports("avx2")) rows = sum_rows_avx2<Weighted, P, I, T>;
#endif
  const int64_t elements = (static_cast<int64_t>(indptr[num_rows]) + num_rows) * dim;
  if (pool.size() == 1 || elements < kSerialElements) {
    rows(indptr, indices, weights, x, dim, out, 0, num_rows);
    return;
  }
  const int64_t slices = kSlicesPerThread * pool.size();
  pool.each(slices, [&](int k, int) {
    const int64_t begin = slice_begin(indptr, num_rows, k, slices);
    const int64_t end = slice_begin(indptr, num_rows, k + 1, slices);
    if (begin < end) rows(indptr, indices, weights, x, dim, out, begin, end);
  });
}

// The block by source: the destinations of source s are rows[indptr[s] .. indptr[s + 1]), ascending.
template <typename I>
struct Transposed {
  std::unique_ptr<int64_t[]> indptr;
  std::unique_ptr<I[]> rows;
};

// Counting sort. Each thread reads all edges and keeps those whose source lies in its own share: nothing is
// shared between threads, and the order within a source is that of the edges.
template <typename P, typename I>
Transposed<I> transpose(const BlockView<P, I>& block, ThreadPool& pool) {
  Transposed<I> t{std::unique_ptr<int64_t[]>(new int64_t[block.num_src + 1]),
                  std::unique_ptr<I[]>(new I[std::max<int64_t>(block.num_edges, 1)])};
  int64_t* begin_of = t.indptr.get();
  begin_of[0] = 0;
  const auto share = [&](const std::function<void(int64_t, int64_t)>& f) {
    return block.num_edges < kSerialSort ? f(0, block.num_src) : pool.split(block.num_src, f);
  };
  share([&](int64_t low, int64_t high) {
    int64_t* count = begin_of + 1;
    std::fill(count + low, count + high, int64_t{0});
    const uint64_t span = high - low;
    for (int64_t e = 0; e < block.num_edges; ++e) {
      const int64_t s = block.indices[e];
      if (static_cast<uint64_t>(s - low) < span) ++count[s];
    }
  });
  // From counts to the begin of each source, kept one place to the right: filling moves it to the source's
  // end.
  int64_t sum = 0;
  for (int64_t s = 0; s < block.num_src; ++s) {
    const int64_t n = begin_of[s + 1];
    begin_of[s + 1] = sum;
    sum += n;
  }
  share([&](int64_t low, int64_t high) {
    int64_t* cursor = begin_of + 1;
    const uint64_t span = high - low;
    for (int64_t i = 0; i < block.num_dst; ++i) {
      for (int64_t e = block.indptr[i]; e < static_cast<int64_t>(block.indptr[i + 1]); ++e) {
        const int64_t s = block.indices[e];
        if (static_cast<uint64_t>(s - low) < span) t.rows[cursor[s]++] = static_cast<I>(i);
      }
    }
  });
  return t;
}

}  // namespace

template <typename P, typename I>
BlockError check_block(const BlockView<P, I>& block, ThreadPool& pool, int64_t* where) {
  if (block.indptr[0] != 0) return BlockError::bad_start;
  if (static_cast<int64_t>(block.indptr[block.num_dst]) != block.num_edges) return BlockError::bad_end;
  constexpr int64_t kNone = INT64_MAX;
  const auto keep_first = [](std::atomic<int64_t>& first, int64_t i) {
    for (int64_t seen = first.load(); i < seen && !first.compare_exchange_weak(seen, i);) {
    }
  };
  std::atomic<int64_t> bad_row{kNone}, bad_edge{kNone};
  const auto check_rows = [&](int64_t begin, int64_t end) {
    bool bad = false;
    for (int64_t i = begin; i < end; ++i) bad |= block.indptr[i] > block.indptr[i + 1];
    if (!bad) return;
    while (block.indptr[begin] <= block.indptr[begin + 1]) ++begin;
    keep_first(bad_row, begin);
  };
  const auto check_edges = [&](int64_t begin, int64_t end) {
    bool bad = false;
    for (int64_t e = begin; e < end; ++e) {
      const int64_t s = block.indices[e];
      bad |= (s < 0) | (s >= block.num_src);
    }
    if (!bad) return;
    while (block.indices[begin] >= 0 && block.indices[begin] < block.num_src) ++begin;
    keep_first(bad_edge, begin);
  };
  if (block.num_edges + block.num_dst < kSerialChecks) {
    check_rows(0, block.num_dst);
    check_edges(0, block.num_edges);
  } else {
    pool.split(block.num_dst, check_rows);
    pool.split(block.num_edges, check_edges);
  }
  if (bad_row != kNone) {
    *where = bad_row;
    return BlockError::not_monotone;
  }
  if (bad_edge != kNone) {
    *where = bad_edge;
    return BlockError::bad_index;
  }
  return BlockError::ok;
}

template <typename P, typename I, typename T>
void mean_forward(const BlockView<P, I>& block, const T* x, int64_t dim, T* out, ThreadPool& pool) {
  const T* unweighted = nullptr;
  sum_all_rows<false>(block.indptr, block.indices, unweighted, x, dim, out, block.num_dst, pool);
}

template <typename P, typename I, typename T>
void mean_backward(const BlockView<P, I>& block, const T* grad_out, int64_t dim, T* grad_x,
                   ThreadPool& pool) {
  std::unique_ptr<T[]> weights(new T[std::max<int64_t>(block.num_dst, 1)]);
  for (int64_t i = 0; i < block.num_dst; ++i) {
    const int64_t n = block.indptr[i + 1] - block.indptr[i];
    weights[i] = n == 0 ? T(0) : T(1) / static_cast<T>(n);
  }
  const Transposed<I> t = transpose(block, pool);
  const int64_t* indptr = t.indptr.get();
  const I* rows = t.rows.get();
  const T* w = weights.get();
  sum_all_rows<true>(indptr, rows, w, grad_out, dim, grad_x, block.num_src, pool);
}

#define LOADER_INSTANTIATE(P, I, T)                                                       \
  template void mean_forward(const BlockView<P, I>&, const T*, int64_t, T*, ThreadPool&); \
  template void mean_backward(const BlockView<P, I>&, const T*, int64_t, T*, ThreadPool&);
#define LOADER_INSTANTIATE_BLOCK(P, I)                                            \
  template BlockError check_block(const BlockView<P, I>&, ThreadPool&, int64_t*); \
  LOADER_INSTANTIATE(P, I, float)                                                 \
  LOADER_INSTANTIATE(P, I, double)

LOADER_INSTANTIATE_BLOCK(int32_t, int32_t)
LOADER_INSTANTIATE_BLOCK(int64_t, int32_t)
LOADER_INSTANTIATE_BLOCK(int64_t, int64_t)

}  // namespace loader
