#include "serve/answer_budget.h"

#include <algorithm>
#include <utility>

namespace quire::serve {

AnswerBudget::AnswerBudget(uint64_t max_bytes, std::function<Clock::time_point()> now)
    : max_bytes_(max_bytes), now_(std::move(now)) {}

bool AnswerBudget::may_begin(uint64_t client, Job job) {
  const uint64_t quarter = max_bytes_ / 4;
  const std::lock_guard lock(mutex_);
  const auto its = clients_.find(client);
  if (its != clients_.end() && its->second >= (job == Job::kLong ? quarter : 3 * quarter)) return false;
  const uint64_t below = job == Job::kLong ? 3 * quarter : max_bytes_;
  if (used_ < below) return true;
  const Clock::time_point now = now_();
  const bool still = wanted_ && now - wanted_->since < kWanted;
  wanted_ = {still ? std::min(wanted_->below, below) : below, now};
  return false;
}

uint64_t AnswerBudget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

void AnswerBudget::hold(uint64_t client, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  clients_[client] += bytes;
  used_ += bytes;
}

void AnswerBudget::give_back(uint64_t client, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto its = clients_.find(client);
  its->second -= bytes;
  used_ -= bytes;
  if (its->second == 0) clients_.erase(its);
}

bool AnswerBudget::must_make_way(uint64_t client) const {
  const std::lock_guard lock(mutex_);
  if (!wanted_ || used_ < wanted_->below || now_() - wanted_->since >= kWanted) return false;
  const uint64_t held = clients_.at(client);
  return std::all_of(clients_.begin(), clients_.end(), [&](const auto& each) { return each.second <= held; });
}

// ---- One answer ----

AnswerBudget::Claim::Claim(AnswerBudget& budget, uint64_t client, uint64_t bytes)
    : client_(client), bytes_(bytes) {
  if (bytes <= kUncounted) return;
  budget.hold(client, bytes);
  budget_ = &budget;
}

AnswerBudget::Claim& AnswerBudget::Claim::operator=(Claim&& other) noexcept {
  if (this == &other) return *this;
  release();
  budget_ = std::exchange(other.budget_, nullptr);
  client_ = other.client_;
  bytes_ = other.bytes_;
  return *this;
}

void AnswerBudget::Claim::release() {
  if (AnswerBudget* budget = std::exchange(budget_, nullptr)) budget->give_back(client_, bytes_);
}

}  // namespace quire::serve
