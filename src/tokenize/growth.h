#pragma once

#include <cstddef>
#include <string_view>

namespace quire::tokenize {

/// The limit on the growth of a text during one encoding, over all steps: a file that replaces a by bb thirty
/// times would otherwise need a billion times the memory. Bytes that a step removes are not credited. The
/// largest growth in practice is NFKD of U+FDFA, to 11 times its bytes.
class Growth {
 public:
  static constexpr size_t kTimes = 32;
  static constexpr size_t kAlways = size_t{64} << 10;

  explicit Growth(size_t input_bytes) : left_(kTimes * input_bytes + kAlways) {}

  size_t left() const { return left_; }
  /// `step` ("normalizer 'Replace'") adds `bytes`. Throws Error naming it if that is too much.
  void spend(std::string_view step, size_t bytes) {
    if (bytes > left_) refuse(step);
    left_ -= bytes;
  }
  /// Adds input.
  void allow(size_t input_bytes) { left_ += kTimes * input_bytes; }

 private:
  [[noreturn]] static void refuse(std::string_view step);

  size_t left_;
};

}  // namespace quire::tokenize
