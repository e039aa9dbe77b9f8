#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/ids.h"

// Masks of the tokens that may come next: one bit per token, from the lowest bit of the first word on; a bit
// of 0 forbids its token.
namespace quire::backend {

/// There is no mask, and the request is at fault. The message is a sentence without a full stop.
class MaskRefused : public Error {
 public:
  using Error::Error;
};

/// The masks of the sequences in a step, by the number of their mask source (SamplingParams::mask).
class TokenMasks {
 public:
  virtual ~TokenMasks() = default;
  /// Forbids the tokens that may not come next in the sequence of `source`; all bits are 1 before the call.
  /// Called in the executor's threads, for several sources at once. An exception ends that sequence alone,
  /// with SeqResult::refused if it is a MaskRefused.
  virtual void fill(uint32_t source, std::span<uint32_t> mask) = 0;
};

inline size_t mask_words(uint32_t vocab_size) { return (size_t{vocab_size} + 31) / 32; }

inline bool allows(std::span<const uint32_t> mask, TokenId token) {
  const auto id = static_cast<uint32_t>(token);
  return (mask[id / 32] >> (id % 32) & 1U) != 0;
}

}  // namespace quire::backend
