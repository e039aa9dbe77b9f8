#include "sim/workload_source.h"

#include <algorithm>
#include <utility>

namespace quire::sim {
namespace {

/// The prompt of a request that is no turn of a conversation.
class PromptMaker final : public TokenMaker {
 public:
  PromptMaker(const WorkloadSettings& settings, RequestPtr request)
      : settings_(settings), request_(std::move(request)) {}
  uint32_t size() const override { return request_->request.prompt_length; }
  std::vector<TokenId> make() const override {
    return prompt_of(settings_, request_->number, request_->request);
  }

 private:
  const WorkloadSettings& settings_;
  RequestPtr request_;
};

}  // namespace

WorkloadSource::WorkloadSource(std::unique_ptr<RequestStream> requests)
    : requests_(std::move(requests)), first_(requests_->next_first()), left_(requests_->size()) {}

bool WorkloadSource::first_is_next() const {
  if (first_ == nullptr || due_.empty()) return first_ != nullptr;
  return due_.top() > Due{first_->request.arrival, first_};
}

std::optional<Nanos> WorkloadSource::next() const {
  if (first_is_next()) return first_->request.arrival;
  return due_.empty() ? std::nullopt : std::optional(due_.top().at);
}

size_t WorkloadSource::take() {
  --left_;
  const Nanos due = *next();
  RequestPtr taken;
  if (first_is_next()) {
    taken = std::exchange(first_, requests_->next_first());
  } else {
    taken = due_.top().request;
    due_.pop();
  }
  const size_t number = taken->number;
  RequestPtr after = requests_->follower(*taken);
  taken_.emplace(number, Taken{due, std::move(taken), std::move(after)});
  return number;
}

std::vector<size_t> WorkloadSource::sent() const {
  std::vector<size_t> out;
  for (const auto& [number, taken] : taken_) out.push_back(number);
  std::ranges::sort(out);
  return out;
}

size_t WorkloadSource::kept() const {
  size_t count = taken_.size() + due_.size() + histories_.size() + (first_ != nullptr ? 1 : 0);
  for (const auto& [number, taken] : taken_) count += taken.after != nullptr ? 1 : 0;
  return count;
}

std::optional<size_t> WorkloadSource::next_turn(size_t number) const {
  const RequestPtr& after = taken_.at(number).after;
  if (after == nullptr || !after->request.continues) return std::nullopt;
  return after->number;
}

std::vector<TokenId> WorkloadSource::prompt(size_t number) {
  const NumberedRequest& of = *taken_.at(number).request;
  std::vector<TokenId> history;
  if (of.request.continues) {
    const auto at = histories_.find(number);
    if (at != histories_.end()) {
      history = std::move(at->second);
      histories_.erase(at);
    }
  }
  std::vector<TokenId> prompt = prompt_of(settings(), number, of.request, of.history_length, history);
  if (keeps_answer(number)) histories_[number] = prompt;
  return prompt;
}

TokenList WorkloadSource::prompt_on_demand(size_t number) {
  const RequestPtr& of = taken_.at(number).request;
  if (of->request.continues) return prompt(number);
  if (keeps_answer(number)) histories_[number];
  return TokenList(std::make_unique<PromptMaker>(settings(), of));
}

void WorkloadSource::begin_history(size_t number, std::vector<TokenId>& history) const {
  if (history.empty()) history = prompt_of(settings(), number, request(number));
}

void WorkloadSource::add_to_history(size_t number, TokenId token) {
  const auto at = histories_.find(number);
  if (at == histories_.end()) return;
  begin_history(number, at->second);
  at->second.push_back(token);
}

void WorkloadSource::make_due(RequestPtr request, Nanos before_ended) {
  const Nanos at = before_ended + request->request.think;
  due_.push({at, std::move(request)});
}

void WorkloadSource::ended(size_t number, Nanos now) {
  if (const auto at = histories_.find(number); at != histories_.end()) begin_history(number, at->second);
  RequestPtr after = std::move(taken_.extract(number).mapped().after);
  if (after == nullptr) return;
  if (auto history = histories_.extract(number)) {
    history.key() = after->number;
    histories_.insert(std::move(history));
  }
  make_due(std::move(after), now);
}

void WorkloadSource::gave_up(size_t number, Nanos now, const Visit& unsent) {
  histories_.erase(number);
  RequestPtr after = std::move(taken_.extract(number).mapped().after);
  for (; after != nullptr && after->request.continues; after = requests_->follower(*after)) {
    unsent(*after);
    --left_;
  }
  if (after != nullptr) make_due(std::move(after), now);
}

void WorkloadSource::visit_unsent(const Visit& unsent) {
  for (; first_ != nullptr; first_ = requests_->next_first()) visit_chain(*requests_, first_, unsent);
  for (; !due_.empty(); due_.pop()) visit_chain(*requests_, due_.top().request, unsent);
  for (const auto& [number, taken] : taken_) visit_chain(*requests_, taken.after, unsent);
}

}  // namespace quire::sim
