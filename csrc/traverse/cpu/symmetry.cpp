#include "traverse/cpu/symmetry.h"

namespace loader {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

uint64_t hash(uint64_t from, uint64_t to, uint64_t weight) {
  return mixed(mixed(from + 0x9E3779B97F4A7C15u) + mixed(to ^ 0xD1B54A32D192ED03u) * 3 + mixed(weight));
}

uint64_t weight_at(const void* weights, int bytes, int64_t at) {
  if (bytes == 4) return static_cast<const uint32_t*>(weights)[at];
  return bytes == 8 ? static_cast<const uint64_t*>(weights)[at] : 0;
}

}  // namespace

template <typename P, typename N>
bool is_symmetric(const PlainGraph<P, N>& graph, const void* weights, int weight_bytes, Workers& workers) {
  uint64_t difference = 0;
  workers.share(graph.num_nodes, 1 << 12, [&](int64_t begin, int64_t end) {
    uint64_t some = 0;
    for (int64_t v = begin; v < end; ++v) {
      const ListOf<P> list = graph.lists.list({v});
      for (P at = list.begin; at < list.end; ++at) {
        const auto a = static_cast<uint64_t>(v), b = static_cast<uint64_t>(graph.lists.read(at));
        const uint64_t weight = weight_at(weights, weights ? weight_bytes : 0, at);
        some += hash(a, b, weight) - hash(b, a, weight);
      }
    }
    __atomic_fetch_add(&difference, some, __ATOMIC_RELAXED);
  });
  return difference == 0;
}

#define INSTANTIATE(P, N) template bool is_symmetric(const PlainGraph<P, N>&, const void*, int, Workers&);
INSTANTIATE(int32_t, int32_t)
INSTANTIATE(int64_t, int32_t)
INSTANTIATE(int64_t, int64_t)

}  // namespace loader
