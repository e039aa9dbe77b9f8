#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace quire::grammar {

/// Finds a mark in a text that comes in pieces, and keeps less of the text than the mark is long.
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

/// Finds a mark at the beginning of a text that comes in pieces; white space before and within it does not
/// count.
class StartFinder {
 public:
  explicit StartFinder(std::string mark) : mark_(std::move(mark)) {}

  /// Once the text has begun with the mark: the whole text up to the end of `piece`, without the white space
  /// before it. Nothing before, and never again.
  std::optional<std::string> take(std::string_view piece) {
    for (size_t i = 0; i < piece.size() && !ended_; ++i) {
      const char c = piece[i];
      const bool is_blank = c == ' ' || c == '\n' || c == '\r' || c == '\t';
      if (!is_blank || matched_ > 0) begun_ += c;
      if (is_blank) continue;
      ended_ = mark_[matched_++] != c || begun_.size() > mark_.size() + kMostBlanks;
      if (ended_ || matched_ < mark_.size()) continue;
      ended_ = true;
      return begun_ + std::string(piece.substr(i + 1));
    }
    return std::nullopt;
  }
  /// It finds nothing more.
  bool ended() const { return ended_; }

 private:
  static constexpr size_t kMostBlanks = 256;

  std::string mark_;
  std::string begun_;
  size_t matched_ = 0;  // bytes of the mark
  bool ended_ = false;
};

}  // namespace quire::grammar
