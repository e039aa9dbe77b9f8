#pragma once

#include <cstddef>
#include <string_view>

namespace quire::tokenize {

/// How much longer than what came in the steps of one encoding may make its text, all of them together: a
/// file that replaces a by bb thirty times over would otherwise ask for a billion times the memory. What a
/// step takes away again is not given back. In use NFKD of U+FDFA grows most, to 11 times its bytes.
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
  /// More has come in.
  void allow(size_t input_bytes) { left_ += kTimes * input_bytes; }

 private:
  [[noreturn]] static void refuse(std::string_view step);

  size_t left_;
};

}  // namespace quire::tokenize
