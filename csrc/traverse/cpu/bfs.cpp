#include "traverse/cpu/bfs.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "traverse/cpu/atomics.h"

namespace loader {
namespace {

constexpr int64_t kPart = 1 << 10;  // vertices of a frontier that a thread takes at once
// When steps turn round: a step back asks all unreached vertices if the frontier has this share of their
// edges, and goes on until the frontier is this share of all vertices (Beamer et al. tuned 14 and 24).
constexpr int64_t kEdgeShare = 14, kVertexShare = 24;

template <typename P, typename N>
class Search {
 public:
  Search(const PlainGraph<P, N>& onward, const PlainGraph<P, N>* back, int32_t* distance, Workers& workers)
      : onward_(onward), back_(back), distance_(distance), workers_(workers), found_(workers.size()) {
    std::fill_n(distance, onward.num_nodes, -1);
    unread_ = count_entries(onward.lists, onward.num_nodes);
  }

  void run(const N* sources, int64_t count, int32_t most) {
    for (int64_t i = 0; i < count; ++i)
      if (distance_[sources[i]] < 0) {
        distance_[sources[i]] = 0;
        frontier_.push_back(sources[i]);
      }
    int64_t size = static_cast<int64_t>(frontier_.size());
    bool backward = false;
    for (int32_t level = 1; size > 0 && level <= most; ++level) {
      if (!backward) {
        const int64_t edges = edges_of_frontier();
        unread_ -= edges;
        backward = back_ && edges > unread_ / kEdgeShare && size > onward_.num_nodes / kVertexShare / 16;
        if (!backward) {
          size = step_onward(level);
          continue;
        }
      }
      size = step_back(level);
      if (size > 0 && size < onward_.num_nodes / kVertexShare) {
        backward = false;
        gather(level);
      }
    }
  }

 private:
  int64_t edges_of_frontier() const {
    int64_t edges = 0;
    for (const N v : frontier_) {
      const ListOf<P> list = onward_.lists.list({v});
      edges += list.end - list.begin;
    }
    return edges;
  }

  int64_t step_onward(int32_t level) {
    const auto size = static_cast<int64_t>(frontier_.size());
    in_parts(size, kPart, [&](int64_t begin, int64_t end, std::vector<N>& found) {
      for (int64_t i = begin; i < end; ++i) {
        const N v = frontier_[static_cast<size_t>(i)];
        const ListOf<P> list = onward_.lists.list({v});
        for (P at = list.begin; at < list.end; ++at) {
          const N u = onward_.lists.read(at);
          if (peek(distance_ + u) < 0 && replace(distance_ + u, -1, level)) found.push_back(u);
        }
      }
    });
    return take_found();
  }

  // Returns how many vertices were reached.
  int64_t step_back(int32_t level) {
    std::vector<int64_t> reached(static_cast<size_t>(workers_.size()), 0);
    each_part(onward_.num_nodes, kPart * 4, [&](int64_t begin, int64_t end, int worker) {
      int64_t count = 0;
      for (int64_t v = begin; v < end; ++v) {
        if (peek(distance_ + v) >= 0) continue;
        const ListOf<P> list = back_->lists.list({v});
        for (P at = list.begin; at < list.end; ++at)
          if (peek(distance_ + back_->lists.read(at)) == level - 1) {
            put(distance_ + v, level);
            ++count;
            break;
          }
      }
      reached[static_cast<size_t>(worker)] += count;
    });
    return std::accumulate(reached.begin(), reached.end(), int64_t{0});
  }

  // The frontier of a level whose steps went back.
  void gather(int32_t level) {
    in_parts(onward_.num_nodes, kPart * 16, [&](int64_t begin, int64_t end, std::vector<N>& found) {
      for (int64_t v = begin; v < end; ++v)
        if (distance_[v] == level) found.push_back(static_cast<N>(v));
    });
    take_found();
  }

  int64_t take_found() {
    frontier_.clear();
    for (auto& some : found_) {
      frontier_.insert(frontier_.end(), some.begin(), some.end());
      some.clear();
    }
    return static_cast<int64_t>(frontier_.size());
  }

  template <class F>
  void each_part(int64_t n, int64_t part, const F& f) {
    part = std::max(part, n / kMaxParts + 1);
    workers_.each((n + part - 1) / part,
                  [&](int index, int worker) { f(part * index, std::min(part * (index + 1), n), worker); });
  }

  template <class F>
  void in_parts(int64_t n, int64_t part, const F& f) {
    each_part(n, part, [&](int64_t begin, int64_t end, int worker) {
      f(begin, end, found_[static_cast<size_t>(worker)]);
    });
  }

  const PlainGraph<P, N>& onward_;
  const PlainGraph<P, N>* const back_;
  int32_t* const distance_;
  Workers& workers_;
  std::vector<N> frontier_;
  std::vector<std::vector<N>> found_;  // of each worker
  int64_t unread_ = 0;                 // edges of vertices that were in no frontier
};

}  // namespace

template <typename P, typename N>
void bfs_on_cpu(const PlainGraph<P, N>& onward, const PlainGraph<P, N>* back, const N* sources, int64_t count,
                int32_t most, int32_t* distance, Workers& workers) {
  Search<P, N>(onward, back, distance, workers).run(sources, count, most);
}

template <typename P, typename N>
void bfs_predecessors_on_cpu(const PlainGraph<P, N>& back, const int32_t* distance, N* predecessors,
                             Workers& workers) {
  workers.share(back.num_nodes, kPart * 4, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      N best = -1;
      const ListOf<P> list = back.lists.list({v});
      if (distance[v] > 0)
        for (P at = list.begin; at < list.end; ++at) {
          const N u = back.lists.read(at);
          if (distance[u] == distance[v] - 1 && (best < 0 || u < best)) best = u;
        }
      predecessors[v] = best;
    }
  });
}

#define INSTANTIATE(P, N)                                                                                \
  template void bfs_on_cpu(const PlainGraph<P, N>&, const PlainGraph<P, N>*, const N*, int64_t, int32_t, \
                           int32_t*, Workers&);                                                          \
  template void bfs_predecessors_on_cpu(const PlainGraph<P, N>&, const int32_t*, N*, Workers&);
INSTANTIATE(int32_t, int32_t)
INSTANTIATE(int64_t, int32_t)
INSTANTIATE(int64_t, int64_t)

}  // namespace loader
