#include "traverse/cpu/components.h"

#include <algorithm>
#include <vector>

#include "traverse/cpu/atomics.h"

namespace loader {
namespace {

constexpr int64_t kPart = 1 << 12;
constexpr int64_t kRounds = 2;      // neighbors of each vertex that come first
constexpr int64_t kSamples = 1024;  // vertices by which the largest part is found

// Makes two trees one. A root gets a smaller vertex as its parent, so the last root is the smallest of all.
template <typename N>
void join(N* label, N u, N v) {
  N a = peek(label + u), b = peek(label + v);
  while (a != b) {
    const N high = std::max(a, b), low = std::min(a, b);
    const N above = peek(label + high);
    if (above == low || (above == high && replace(label + high, high, low))) return;
    a = peek(label + peek(label + high));
    b = peek(label + low);
  }
}

template <typename N>
void flatten(N* label, int64_t num_nodes, Workers& workers) {
  workers.share(num_nodes, kPart, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v)
      for (N above = peek(label + v), root; (root = peek(label + above)) != above; above = root)
        put(label + v, root);
  });
}

// The label that most of some vertices have.
template <typename N>
N most_frequent(const N* label, int64_t num_nodes) {
  const int64_t count = std::min(num_nodes, kSamples);
  std::vector<N> some;
  for (int64_t i = 0; i < count; ++i) some.push_back(label[num_nodes / count * i]);
  std::sort(some.begin(), some.end());
  N best = some[0];
  int64_t longest = 0;
  for (size_t i = 0, begin = 0; i < some.size(); ++i) {
    if (some[i] != some[begin]) begin = i;
    if (const auto run = static_cast<int64_t>(i - begin) + 1; run > longest) {
      longest = run;
      best = some[i];
    }
  }
  return best;
}

}  // namespace

template <typename P, typename N>
void components_on_cpu(const PlainGraph<P, N>& graph, bool symmetric, N* label, Workers& workers) {
  const int64_t n = graph.num_nodes;
  if (n == 0) return;
  for (int64_t v = 0; v < n; ++v) label[v] = static_cast<N>(v);
  const auto over_vertices = [&](const auto& f) {
    workers.share(n, kPart, [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) f(static_cast<N>(v), graph.lists.list({v}));
    });
  };
  for (int64_t round = 0; round < kRounds; ++round)
    over_vertices([&](N v, ListOf<P> list) {
      if (round < list.end - list.begin)
        join(label, v, graph.lists.read(list.begin, static_cast<uint32_t>(round)));
    });
  flatten(label, n, workers);
  const N largest = symmetric ? most_frequent(label, n) : N{-1};
  over_vertices([&](N v, ListOf<P> list) {
    if (peek(label + v) == largest) return;
    for (P at = list.begin + std::min<P>(kRounds, list.end - list.begin); at < list.end; ++at)
      join(label, v, graph.lists.read(at));
  });
  flatten(label, n, workers);
}

#define INSTANTIATE(P, N) template void components_on_cpu(const PlainGraph<P, N>&, bool, N*, Workers&);
INSTANTIATE(int32_t, int32_t)
INSTANTIATE(int64_t, int32_t)
INSTANTIATE(int64_t, int64_t)

}  // namespace loader
