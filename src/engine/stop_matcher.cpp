#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace quire::engine {
namespace {

/// Length of the longest suffix of `text` that is a proper prefix of `stop`.
size_t overlap(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include)
    : stops_(std::move(stops)), include_(include) {}

StopMatcher::Result StopMatcher::push(std::string_view piece) {
  if (stops_.empty()) return {std::string(piece), std::nullopt};
  held_ += piece;
  size_t first = std::string::npos;
  size_t first_end = std::string::npos;
  const std::string* found = nullptr;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end > first_end || (end == first_end && at >= first)) continue;
    first = at;
    first_end = end;
    found = &stop;
  }
  if (found != nullptr) {
    held_.resize(first + (include_ ? found->size() : 0));
    return {std::exchange(held_, {}), *found};
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) keep = std::max(keep, overlap(held_, stop));
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return {std::move(text), std::nullopt};
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

}  // namespace quire::engine
