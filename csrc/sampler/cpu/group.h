// A sampler of one graph for groups of mini-batches, and for several callers at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fork.h"
#include "parallel.h"
#include "sampler/sampler.h"

namespace loader {

template <typename N>
struct Request {
  const N* seeds;
  int64_t num_seeds;
  BatchKeys keys;
};

// A large group is spread over the threads, a thread per mini-batch, each with a workspace of its own; the
// mini-batches of a small one follow each other, and all threads share in each. Who finds the threads busy
// with another call samples a single mini-batch by itself, in one more workspace, and waits for its turn with
// a group. Workspaces are made when they are first needed, and kept.
template <template <typename, typename> class Impl, typename P, typename N>
class GroupSampler {
 public:
  using Sampler = Impl<P, N>;
  // Where the arrays of request i go; called from the thread that sampled it.
  using Place = std::function<SampleOut<P, N>(size_t i, const SampleSizes& sizes)>;

  // Makes a sampler that works with the threads of a pool.
  using Make = std::function<std::unique_ptr<Sampler>(const std::shared_ptr<ThreadPool>&)>;

  GroupSampler(const Csc<P, N>& graph, SampleOptions options, int num_threads, Make make)
      : graph_(graph),
        options_(std::move(options)),
        make_(std::move(make)),
        pool_(std::make_shared<ThreadPool>(num_threads)) {}

  // Returns the exception of each request, null for those that went well.
  std::vector<std::exception_ptr> sample(const std::vector<Request<N>>& group, const Place& place) {
    std::vector<std::exception_ptr> errors(group.size());
    const auto one = [&](Sampler& sampler, size_t i) {
      try {
        SampleOptions options = options_;
        options.keys = group[i].keys;
        sampler.write(place(i, sampler.sample(graph_, group[i].seeds, group[i].num_seeds, options)));
      } catch (...) {
        errors[i] = std::current_exception();
      }
    };
    if (pool_->size() == 1) {
      const Lease own(*this);
      for (size_t i = 0; i < group.size(); ++i) one(*own, i);
    } else if (2 * group.size() <= static_cast<size_t>(pool_->size()) || group.size() == 1) {
      for (size_t i = 0; i < group.size(); ++i) {
        std::unique_lock<LongMutex> turn(turn_, std::try_to_lock);
        if (turn.owns_lock()) {
          const Busy busy(team_busy_);
          if (!team_) team_ = make_(pool_);
          one(*team_, i);
        } else {
          one(*Lease(*this), i);
        }
      }
    } else {
      std::lock_guard<LongMutex> turn(turn_);
      pool_->each(static_cast<int64_t>(group.size()), [&](int i, int) { one(*Lease(*this), i); });
    }
    return errors;
  }

 private:
  // A sampler for the calling thread alone, for as long as the lease lives.
  class Lease {
   public:
    explicit Lease(GroupSampler& group) : group_(group) {
      {
        std::lock_guard<BriefMutex> lock(group.idle_mutex_);
        if (!group.idle_.empty()) {
          sampler_ = std::move(group.idle_.back());
          group.idle_.pop_back();
        }
      }
      if (!sampler_) sampler_ = group.make_(std::make_shared<ThreadPool>(1));
    }
    ~Lease() {
      std::lock_guard<BriefMutex> lock(group_.idle_mutex_);
      group_.idle_.push_back(std::move(sampler_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Sampler& operator*() const { return *sampler_; }

   private:
    GroupSampler& group_;
    std::unique_ptr<Sampler> sampler_;
  };

  struct Busy {
    explicit Busy(bool& flag) : flag(flag) { flag = true; }
    ~Busy() { flag = false; }
    bool& flag;
  };

  const Csc<P, N> graph_;
  const SampleOptions options_;
  const Make make_;
  const std::shared_ptr<ThreadPool> pool_;
  LongMutex turn_;  // of the pool's threads
  std::unique_ptr<Sampler> team_;
  bool team_busy_ = false;
  BriefMutex idle_mutex_;
  std::vector<std::unique_ptr<Sampler>> idle_;
  // A child leaves alone what another thread was using at the fork.
  ForkHook hook_{{{}, {}, [this] {
                    if (team_busy_) static_cast<void>(team_.release());
                    team_busy_ = false;
                  }}};
};

}  // namespace loader
