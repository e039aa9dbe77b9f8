#include "sim/workload_source.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::sim {
namespace {

/// The prompt of a request that is no turn of a conversation.
class PromptMaker final : public TokenMaker {
 public:
  PromptMaker(const Workload& workload, size_t index) : workload_(workload), index_(index) {}
  uint32_t size() const override { return workload_.requests[index_].prompt_length; }
  std::vector<TokenId> make() const override { return workload_.prompt(index_); }

 private:
  const Workload& workload_;
  size_t index_;
};

}  // namespace

WorkloadSource::WorkloadSource(const Workload& workload)
    : workload_(workload), left_(workload.requests.size()) {
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const SimRequest& request = workload.requests[i];
    if (request.follows == kNoRequest) {
      first_.emplace_back(request.arrival, i);
      continue;
    }
    if (followers_.empty()) followers_.resize(workload.requests.size(), kNoRequest);
    if (request.follows >= i || followers_[request.follows] != kNoRequest) {
      throw Error(fmt::format("workload: request {} cannot follow request {}", i, request.follows));
    }
    followers_[request.follows] = static_cast<uint32_t>(i);
  }
  std::sort(first_.begin(), first_.end());
}

std::optional<Nanos> WorkloadSource::next() const {
  const bool has_first = next_first_ < first_.size();
  if (due_.empty()) return has_first ? std::optional(first_[next_first_].first) : std::nullopt;
  return has_first ? std::min(first_[next_first_].first, due_.top().first) : due_.top().first;
}

size_t WorkloadSource::take() {
  --left_;
  if (due_.empty() || (next_first_ < first_.size() && first_[next_first_] < due_.top())) {
    return first_[next_first_++].second;
  }
  const size_t index = due_.top().second;
  due_.pop();
  return index;
}

std::vector<TokenId> WorkloadSource::prompt(size_t index) {
  std::vector<TokenId> history;
  if (workload_.requests[index].continues) {
    const auto at = histories_.find(index);
    if (at != histories_.end()) {
      history = std::move(at->second);
      histories_.erase(at);
    }
  }
  std::vector<TokenId> prompt = workload_.prompt(index, history);
  if (keeps_answer(index)) histories_[index] = prompt;
  return prompt;
}

TokenList WorkloadSource::prompt_on_demand(size_t index) {
  if (workload_.requests[index].continues || keeps_answer(index)) return prompt(index);
  return TokenList(std::make_unique<PromptMaker>(workload_, index));
}

void WorkloadSource::add_to_history(size_t index, TokenId token) {
  const auto at = histories_.find(index);
  if (at != histories_.end()) at->second.push_back(token);
}

void WorkloadSource::ended(size_t index, Nanos now) {
  const uint32_t after = follower(index);
  if (after == kNoRequest) return;
  if (auto history = histories_.extract(index)) {
    history.key() = after;
    histories_.insert(std::move(history));
  }
  due_.emplace(now + workload_.requests[after].think, after);
}

std::vector<size_t> WorkloadSource::gave_up(size_t index, Nanos now) {
  histories_.erase(index);
  std::vector<size_t> unsent;
  uint32_t after = follower(index);
  while (after != kNoRequest && workload_.requests[after].continues) {
    unsent.push_back(after);
    --left_;
    after = follower(after);
  }
  if (after != kNoRequest) due_.emplace(now + workload_.requests[after].think, after);
  return unsent;
}

}  // namespace quire::sim
