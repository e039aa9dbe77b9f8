#include "grammar/mask_allowance.h"

namespace quire::grammar {

void MaskAllowance::refill(Clock::time_point now) {
  if (now > filled_) {
    const double seconds = std::chrono::duration<double>(now - filled_).count();
    const double states = static_cast<double>(left_) + seconds * static_cast<double>(kStatesPerSecond);
    left_ = static_cast<int64_t>(std::min(states, static_cast<double>(kMost)));
  }
  filled_ = std::max(filled_, now);
}

bool MaskAllowance::spend(int64_t states, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  refill(now);
  left_ = std::max(left_ - states, -kMostOwed);
  return left_ >= 0;
}

std::chrono::seconds MaskAllowance::wait(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  refill(now);
  if (left_ >= 0) return std::chrono::seconds(0);
  return std::chrono::seconds(1 - left_ / kStatesPerSecond);
}

bool MaskAllowance::whole(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  refill(now);
  return left_ == kMost;
}

}  // namespace quire::grammar
