#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace quire::grammar {

/// Finds a mark in a text that comes in pieces. It keeps less of the text than the mark is long.
class MarkFinder {
 public:
  /// `mark`: not empty.
  explicit MarkFinder(std::string mark) : mark_(std::move(mark)) {}

  /// Once the text up to the end of `piece` holds the mark: what follows the mark, and the search begins anew
  /// behind that. Nothing before.
  std::optional<std::string> take(std::string_view piece) {
    tail_ += piece;
    const size_t at = tail_.find(mark_);
    if (at == std::string::npos) {
      if (tail_.size() >= mark_.size()) tail_.erase(0, tail_.size() - mark_.size() + 1);
      return std::nullopt;
    }
    std::string rest = tail_.substr(at + mark_.size());
    tail_.clear();
    return rest;
  }

 private:
  std::string mark_;
  std::string tail_;
};

}  // namespace quire::grammar
