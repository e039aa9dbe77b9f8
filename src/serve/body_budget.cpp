#include "serve/body_budget.h"

#include <algorithm>
#include <tuple>

namespace quire::serve {

BodyBudget::BodyBudget(uint64_t max_bytes, std::function<Clock::time_point()> now)
    : max_bytes_(max_bytes), now_(std::move(now)) {}

uint64_t BodyBudget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

// ---- One body ----

void BodyBudget::Claim::begin(uint64_t client) {
  client_ = client;
  begun_ = progress_ = budget_.now_();
}

bool BodyBudget::Claim::grow_to(uint64_t bytes) {
  if (bytes <= kUncounted && !listed_) return true;
  const std::lock_guard lock(budget_.mutex_);
  if (!listed_) {
    // Operations that may throw come first, so that nothing has to be undone.
    std::list<Claim*> entry{this};
    ++budget_.clients_[client_].bodies;
    place_ = entry.begin();
    budget_.claims_.splice(budget_.claims_.end(), entry);
    listed_ = true;
    receiving_ = true;
  }
  return budget_.grow(*this, bytes);
}

void BodyBudget::Claim::progress() {
  if (!listed_) return;
  const std::lock_guard lock(budget_.mutex_);
  progress_ = budget_.now_();
}

void BodyBudget::Claim::settle() {
  if (!listed_) return;
  const std::lock_guard lock(budget_.mutex_);
  receiving_ = false;
}

void BodyBudget::Claim::release() {
  if (!listed_) return;
  const std::lock_guard lock(budget_.mutex_);
  budget_.set_bytes(*this, 0);
  budget_.claims_.erase(place_);
  const auto client = budget_.clients_.find(client_);
  if (--client->second.bodies == 0) budget_.clients_.erase(client);
  listed_ = false;
}

// ---- All of them ----

void BodyBudget::set_bytes(Claim& claim, uint64_t bytes) {
  used_ += bytes - claim.bytes_;
  clients_[claim.client_].bytes += bytes - claim.bytes_;
  claim.bytes_ = bytes;
}

/// Whether `claim` may hold `bytes`; if not, `own_share` says that its client holds too much, not all
/// together.
bool BodyBudget::fits(const Claim& claim, uint64_t bytes, bool& own_share) const {
  const uint64_t of_client = clients_.at(claim.client_).bytes;
  own_share = of_client > claim.bytes_ && of_client - claim.bytes_ + bytes > max_bytes_ / 2;
  return !own_share && used_ - claim.bytes_ + bytes <= max_bytes_;
}

/// The body to drop for `asking`, which would hold `bytes`; null if there is none.
BodyBudget::Claim* BodyBudget::find_slow(const Claim& asking, uint64_t bytes, bool own_share) {
  const Clock::time_point now = now_();
  // The client that holds the most; of its bodies the one with the most byte-seconds.
  using Rank = std::tuple<uint64_t, double>;
  const auto rank = [&](const Claim& claim, uint64_t held, uint64_t more) {
    const std::chrono::duration<double> age = now - claim.begun_;
    return Rank(clients_.at(claim.client_).bytes + more, static_cast<double>(held) * age.count());
  };
  Rank highest = rank(asking, bytes, bytes - asking.bytes_);
  Claim* found = nullptr;
  for (Claim* claim : claims_) {
    if (claim == &asking || !claim->receiving_ || claim->bytes_ == 0) continue;
    if (own_share && claim->client_ != asking.client_) continue;
    const std::chrono::duration<double> age = now - claim->begun_;
    const bool stalls = now - claim->progress_ >= kGrace;
    const bool is_slow = static_cast<double>(claim->bytes_) < age.count() * kSlowBytesPerSecond;
    if (age < kGrace || !(stalls || is_slow)) continue;
    const uint64_t more = claim->client_ == asking.client_ ? bytes - asking.bytes_ : 0;
    const Rank its = rank(*claim, claim->bytes_, more);
    if (its < highest) continue;
    highest = its;
    found = claim;
  }
  return found;
}

bool BodyBudget::grow(Claim& claim, uint64_t bytes) {
  if (bytes > claim.bytes_) {
    // A dropped body gets no more memory.
    if (!claim.receiving_) return false;
    bool own_share = false;
    while (!fits(claim, bytes, own_share)) {
      Claim* slow = find_slow(claim, bytes, own_share);
      if (slow == nullptr) return false;
      slow->make_way_();  // if it throws, the body stays, and counts
      set_bytes(*slow, 0);
      slow->receiving_ = false;
    }
  }
  set_bytes(claim, bytes);
  return true;
}

}  // namespace quire::serve
