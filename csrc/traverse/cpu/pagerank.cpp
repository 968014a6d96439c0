#include "traverse/cpu/pagerank.h"

#include <vector>

#include "traverse/cpu/atomics.h"

namespace loader {
namespace {

constexpr int64_t kPart = 1 << 12;

void add(uint64_t* to, uint64_t share) { __atomic_fetch_add(to, share, __ATOMIC_RELAXED); }

}  // namespace

template <typename P, typename N>
RankResult pagerank_on_cpu(const PlainGraph<P, N>& back, const RankLaw& law, double* ranks,
                           Workers& workers) {
  const int64_t n = back.num_nodes;
  const auto size = static_cast<size_t>(n);
  RankResult result{0, 0};
  if (n == 0) return result;
  std::vector<uint64_t> followers(size, 0), rank(size, kWhole / static_cast<uint64_t>(n)), passes(size);
  workers.share(count_entries(back.lists, n), kPart * 16, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at)
      add(&followers[static_cast<size_t>(back.lists.read(static_cast<P>(at)))], 1);
  });
  for (bool more = law.most_iterations > 0; more;) {
    uint64_t loose = 0, change = 0;
    workers.share(n, kPart, [&](int64_t begin, int64_t end) {
      uint64_t some = 0;
      for (auto v = static_cast<size_t>(begin); v < static_cast<size_t>(end); ++v) {
        passes[v] = followers[v] ? rank[v] / followers[v] : 0;
        if (!followers[v]) some += rank[v];
      }
      add(&loose, some);
    });
    workers.share(n, kPart, [&](int64_t begin, int64_t end) {
      uint64_t some = 0;
      for (int64_t v = begin; v < end; ++v) {
        uint64_t passed = 0;
        const ListOf<P> list = back.lists.list({v});
        for (P at = list.begin; at < list.end; ++at)
          passed += passes[static_cast<size_t>(back.lists.read(at))];
        uint64_t& old = rank[static_cast<size_t>(v)];
        const uint64_t fresh = law.rank(v, passed, loose);
        some += fresh > old ? fresh - old : old - fresh;
        old = fresh;
      }
      add(&change, some);
    });
    result = {change, result.iterations + 1};
    more = change >= law.close && result.iterations < static_cast<uint64_t>(law.most_iterations);
  }
  workers.split(n, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) ranks[v] = as_number(rank[static_cast<size_t>(v)]);
  });
  return result;
}

#define INSTANTIATE(P, N) \
  template RankResult pagerank_on_cpu(const PlainGraph<P, N>&, const RankLaw&, double*, Workers&);
INSTANTIATE(int32_t, int32_t)
INSTANTIATE(int64_t, int32_t)
INSTANTIATE(int64_t, int64_t)

}  // namespace loader
