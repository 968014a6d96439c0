// Threads that each have a job of their own, and help with the others' when theirs is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "parallel.h"
#include "wait_and_wake.h"

namespace loader {

// A job goes through rounds of parts. Its member takes the parts one after the other, and is the only one
// with them as a rule; members that are idle take some, too. So nobody waits long for one whose processor is
// slow.
class HelpingThreads {
 public:
  explicit HelpingThreads(int size) : rounds_(static_cast<size_t>(size)) {}

  HelpingThreads(const HelpingThreads&) = delete;
  HelpingThreads& operator=(const HelpingThreads&) = delete;

  // One member as who works on its job.
  class Member : public Workers {
   public:
    Member(HelpingThreads& threads, int member) : threads_(threads), member_(member) {}
    int size() const override { return static_cast<int>(threads_.rounds_.size()); }
    int owner() const override { return member_; }
    void each(int64_t parts, const Function& f) override { threads_.each(member_, parts, f); }

   private:
    HelpingThreads& threads_;
    const int member_;
  };

  // Helps the others until `done()`; who makes that true calls `ring`.
  template <typename Done>
  void help(int member, const Done& done) {
    idle_.fetch_add(1);
    const size_t size = rounds_.size();
    while (!done()) {
      for (size_t i = 1; i < size; ++i) rounds_[(static_cast<size_t>(member) + i) % size].work(member);
      news_.wait([&] { return done() || some_are_open(); });
    }
    idle_.fetch_sub(1);
  }

  void ring() { news_.ring(kMaxThreads); }

 private:
  void each(int member, int64_t parts, const Workers::Function& f) {
    check_parts(parts);
    if (parts < 2) {
      if (parts == 1) f(0, member);
      return;
    }
    Round& round = rounds_[static_cast<size_t>(member)];
    round.open(static_cast<uint32_t>(parts), f);
    // One that goes idle at this moment may miss this round, and helps with the next.
    if (idle_.load(std::memory_order_relaxed) > 0) news_.ring(static_cast<int>(parts) - 1);
    round.work(member);
    round.wait();
  }

  bool some_are_open() const {
    for (const Round& round : rounds_)
      if (round.is_open()) return true;
    return false;
  }

  std::vector<Round> rounds_;  // of each member
  alignas(64) std::atomic<int> idle_{0};
  alignas(64) Doorbell news_;  // rings for a new round, and when all is done
};

}  // namespace loader
