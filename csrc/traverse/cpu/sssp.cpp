#include "traverse/cpu/sssp.h"

#include <algorithm>
#include <vector>

#include "traverse/cpu/atomics.h"

namespace loader {
namespace {

constexpr int64_t kPart = 256;  // vertices of a pile that a thread takes at once

enum Pile : uint8_t { kNear = 1, kFar = 2 };

template <typename P, typename N, typename W>
class Piles {
  using Of = Length<W>;
  using Bits = typename Of::Bits;

 public:
  Piles(const PlainGraph<P, N>& onward, const W* weights, W delta, Bits* length, Workers& workers)
      : onward_(onward),
        weights_(weights),
        delta_(delta),
        length_(length),
        workers_(workers),
        is_in_(static_cast<size_t>(onward.num_nodes), 0),
        found_(workers.size()) {
    std::fill_n(length, onward.num_nodes, Of::kUnreached);
  }

  void run(const N* sources, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      if (length_[sources[i]] != 0) {
        length_[sources[i]] = 0;
        near_.push_back(sources[i]);
        is_in_[static_cast<size_t>(sources[i])] = kNear;
      }
    limit_ = Of::plus(0, delta_);
    while (!near_.empty()) {
      while (!near_.empty()) relax();
      divide();
    }
  }

 private:
  struct Found {
    std::vector<N> near, far;
  };

  // Follows the edges of the near pile.
  void relax() {
    const auto size = static_cast<int64_t>(near_.size());
    const int64_t part = std::max(kPart, size / kMaxParts + 1);
    workers_.each((size + part - 1) / part, [&](int index, int worker) {
      Found& found = found_[static_cast<size_t>(worker)];
      const int64_t end = std::min(part * (index + 1), size);
      for (int64_t i = part * index; i < end; ++i) relax(near_[static_cast<size_t>(i)], found);
    });
    near_.clear();
    for (Found& some : found_) {
      near_.insert(near_.end(), some.near.begin(), some.near.end());
      far_.insert(far_.end(), some.far.begin(), some.far.end());
      some.near.clear();
      some.far.clear();
    }
  }

  void relax(N v, Found& found) {
    // First out of the pile: who makes the path shorter from here on puts it back.
    __atomic_fetch_and(&is_in_[static_cast<size_t>(v)], static_cast<uint8_t>(~kNear), __ATOMIC_ACQ_REL);
    const Bits length = __atomic_load_n(length_ + v, __ATOMIC_ACQUIRE);
    const ListOf<P> list = onward_.lists.list({v});
    for (P at = list.begin; at < list.end; ++at) {
      const N u = onward_.lists.read(at);
      const Bits longer = Of::plus(length, weights_[at]);
      if (!lower(length_ + u, longer)) continue;
      const Pile pile = longer <= limit_ ? kNear : kFar;
      const uint8_t before =
          __atomic_fetch_or(&is_in_[static_cast<size_t>(u)], static_cast<uint8_t>(pile), __ATOMIC_ACQ_REL);
      if (!(before & pile)) (pile == kNear ? found.near : found.far).push_back(u);
    }
  }

  // Takes the nearest of the far pile into the near one. Those that a shorter path brought there before are
  // done.
  void divide() {
    const Bits done = limit_;
    Bits least = Of::kUnreached;
    size_t left = 0;
    for (const N v : far_) {
      if (length_[v] <= done) {
        is_in_[static_cast<size_t>(v)] = 0;
        continue;
      }
      least = std::min(least, length_[v]);
      far_[left++] = v;
    }
    far_.resize(left);
    limit_ = Of::plus(least, delta_);
    left = 0;
    for (const N v : far_) {
      if (length_[v] <= limit_) {
        is_in_[static_cast<size_t>(v)] = kNear;
        near_.push_back(v);
      } else {
        far_[left++] = v;
      }
    }
    far_.resize(left);
  }

  const PlainGraph<P, N>& onward_;
  const W* const weights_;
  const W delta_;
  Bits* const length_;
  Workers& workers_;
  Bits limit_ = 0;  // the greatest length of the near pile
  std::vector<N> near_, far_;
  std::vector<uint8_t> is_in_;  // the piles of each vertex
  std::vector<Found> found_;    // of each worker
};

}  // namespace

template <typename P, typename N, typename W>
void sssp_on_cpu(const PlainGraph<P, N>& onward, const W* weights, const N* sources, int64_t count, W delta,
                 typename Length<W>::Bits* length, Workers& workers) {
  Piles<P, N, W>(onward, weights, delta, length, workers).run(sources, count);
}

#define INSTANTIATE(P, N, W)                                                                           \
  template void sssp_on_cpu(const PlainGraph<P, N>&, const W*, const N*, int64_t, W, Length<W>::Bits*, \
                            Workers&);
#define INSTANTIATE_ALL(P, N) \
  INSTANTIATE(P, N, float)    \
  INSTANTIATE(P, N, double)   \
  INSTANTIATE(P, N, int32_t)  \
  INSTANTIATE(P, N, int64_t)
INSTANTIATE_ALL(int32_t, int32_t)
INSTANTIATE_ALL(int64_t, int32_t)
INSTANTIATE_ALL(int64_t, int64_t)

}  // namespace loader
