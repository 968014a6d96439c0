// A sampler of one graph for groups of mini-batches, and for several callers at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fork.h"
#include "helping_threads.h"
#include "parallel.h"
#include "sampler/sampler.h"

namespace loader {

template <typename N>
struct Request {
  const N* seeds;
  int64_t num_seeds;
  BatchKeys keys;
};

// A large group is spread over the threads, a thread per mini-batch, each with a workspace of its own; who is
// done helps the others with theirs. The mini-batches of a small group follow each other, and all threads
// share in each. Who finds the threads busy with another call samples a single mini-batch by itself, in one
// more workspace, and waits for its turn with a group. Workspaces are made when they are first needed, and
// kept: a thread finds its own in the caches of its processor.
template <typename SamplerOf>
class GroupSampler {
 public:
  using Sampler = SamplerOf;
  using Lists = typename Sampler::Lists;
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  // Where the arrays of request i go; called from the thread that sampled it.
  using Place = std::function<SampleOut<P, N>(size_t i, const SampleSizes& sizes)>;

  // Makes a sampler that works with the threads of a pool.
  using Make = std::function<std::unique_ptr<Sampler>(const std::shared_ptr<Workers>&)>;

  GroupSampler(const GraphOf<Lists>& graph, typename Sampler::Options options, int num_threads, Make make)
      : graph_(graph),
        options_(std::move(options)),
        make_(std::move(make)),
        pool_(std::make_shared<ThreadPool>(num_threads)) {}

  // Wakes the threads for a group that follows within microseconds.
  void expect(size_t group_size) {
    if (group_size < 2) return;
    std::unique_lock<LongMutex> turn(turn_, std::try_to_lock);
    if (turn.owns_lock()) pool_->wake(pool_->size() - 1);
  }

  // Returns the exception of each request, null for those that went well.
  std::vector<std::exception_ptr> sample(const std::vector<Request<N>>& group, const Place& place) {
    return sample(options_, group, place);
  }
  // The same with options of this call.
  std::vector<std::exception_ptr> sample(const typename Sampler::Options& asked,
                                         const std::vector<Request<N>>& group, const Place& place) {
    std::vector<std::exception_ptr> errors(group.size());
    const auto one = [&](std::unique_ptr<Sampler>& sampler, size_t i, const auto& workers) {
      try {
        if (!sampler) sampler = make_(workers());
        auto options = asked;
        options.keys = group[i].keys;
        sampler->write(place(i, sampler->sample(graph_, group[i].seeds, group[i].num_seeds, options)));
      } catch (...) {
        errors[i] = std::current_exception();
      }
    };
    const auto alone = [&](Lease& own, size_t i) {
      one(own.sampler, i, [] { return std::make_shared<ThreadPool>(1); });
    };
    if (pool_->size() == 1) {
      Lease own(*this);
      for (size_t i = 0; i < group.size(); ++i) alone(own, i);
    } else if (2 * group.size() <= static_cast<size_t>(pool_->size()) || group.size() == 1) {
      for (size_t i = 0; i < group.size(); ++i) {
        std::unique_lock<LongMutex> turn(turn_, std::try_to_lock);
        if (turn.owns_lock()) {
          const Busy busy(busy_);
          one(team_, i, [&] { return pool_; });
        } else {
          Lease own(*this);
          alone(own, i);
        }
      }
    } else {
      std::lock_guard<LongMutex> turn(turn_);
      const Busy busy(busy_);
      if (!helping_) {
        members_.resize(static_cast<size_t>(pool_->size()));
        helping_ = std::make_unique<HelpingThreads>(pool_->size());
      }
      std::atomic<size_t> next{0}, left{group.size()};
      pool_->each(pool_->size(), [&](int, int worker) {
        for (size_t i; (i = next.fetch_add(1)) < group.size();) {
          one(members_[worker], i,
              [&] { return std::make_shared<HelpingThreads::Member>(*helping_, worker); });
          if (left.fetch_sub(1) == 1) helping_->ring();
        }
        helping_->help(worker, [&] { return left.load() == 0; });
      });
    }
    return errors;
  }

 private:
  // A sampler for the calling thread only, for as long as the lease lives; null if there is none yet.
  class Lease {
   public:
    explicit Lease(GroupSampler& group) : group_(group) {
      std::lock_guard<BriefMutex> lock(group.idle_mutex_);
      if (group.idle_.empty()) return;
      sampler = std::move(group.idle_.back());
      group.idle_.pop_back();
    }
    ~Lease() {
      if (!sampler) return;
      std::lock_guard<BriefMutex> lock(group_.idle_mutex_);
      group_.idle_.push_back(std::move(sampler));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    std::unique_ptr<Sampler> sampler;

   private:
    GroupSampler& group_;
  };

  const GraphOf<Lists> graph_;
  const typename Sampler::Options options_;
  const Make make_;
  const std::shared_ptr<ThreadPool> pool_;
  LongMutex turn_;                 // of the pool's threads
  bool busy_ = false;              // somebody has the turn, and with it:
  std::unique_ptr<Sampler> team_;  // in which all threads share
  std::unique_ptr<HelpingThreads> helping_;
  std::vector<std::unique_ptr<Sampler>> members_;  // of the threads
  BriefMutex idle_mutex_;
  std::vector<std::unique_ptr<Sampler>> idle_;
  // A child leaves alone what another thread was using at the fork.
  ForkHook hook_{{{}, {}, [this] {
                    if (!busy_) return;
                    busy_ = false;
                    static_cast<void>(team_.release());
                    static_cast<void>(helping_.release());
                    for (auto& member : members_) static_cast<void>(member.release());
                  }}};
};

}  // namespace loader
