#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/token_list.h"
#include "sim/workload.h"

namespace quire::sim {

/// Hands out the requests of a workload when they are due, those of an open loop at their times, and those
/// that follow another after they were told of its end. It makes the prompts, with the history of a
/// conversation as it really was. Decides by times and numbers only, so that the same ends at the same times
/// give the same requests. Not thread-safe.
class WorkloadSource {
 public:
  /// `workload` must outlive it. Throws Error if a request follows a later one, or one that another follows.
  explicit WorkloadSource(const Workload& workload);

  /// When the next request is due; nullopt: none is, before another has ended.
  std::optional<Nanos> next() const;
  /// That request. REQUIRES: next() is not nullopt.
  size_t take();
  /// Requests that were not handed out yet and may be.
  size_t left() const { return left_; }

  /// The prompt of a request that was taken; once.
  std::vector<TokenId> prompt(size_t index);
  /// The same, made when it is read, and again when it was forgotten; of a conversation of several turns, at
  /// once. The workload must outlive it.
  TokenList prompt_on_demand(size_t index);
  /// Whether another request continues it; of others, sampled() has no effect.
  bool keeps_answer(size_t index) const {
    const uint32_t after = follower(index);
    return after != kNoRequest && workload_.requests[after].continues;
  }
  /// A token of its (first) answer.
  void sampled(size_t index, TokenId token) {
    if (!histories_.empty()) add_to_history(index, token);
  }
  /// It has ended, and what follows it is due after its think time.
  void ended(size_t index, Nanos now);
  /// It was refused or has failed: later turns of its conversation are never sent; they are returned. What
  /// follows them is due after its think time.
  std::vector<size_t> gave_up(size_t index, Nanos now);

 private:
  void add_to_history(size_t index, TokenId token);
  uint32_t follower(size_t index) const { return followers_.empty() ? kNoRequest : followers_[index]; }

  const Workload& workload_;
  using Due = std::pair<Nanos, size_t>;
  std::vector<Due> first_;  // those that follow no other, in order of arrival
  size_t next_first_ = 0;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;  // those that follow another
  std::vector<uint32_t> followers_;                                 // empty: nothing follows another
  size_t left_;
  /// Of conversations that go on: prompt and answer of the last turn, by the number of that turn, or of the
  /// next one once it has ended.
  std::unordered_map<size_t, std::vector<TokenId>> histories_;
};

}  // namespace quire::sim
