#pragma once

#include <cstdint>

#include "base/ids.h"
#include "control/costs.h"

namespace quire::backend::sim {

/// How long a step takes, in whole nanoseconds. With p prompt tokens (recomputed tokens included), d
/// sequences that decode and m blocks moved to the host or back:
///
///   step + ceil(p * 10^6 / prefill_tokens_per_ms) + (d == 0 ? 0 : decode + (d - 1) * decode_more)
///        + m * swap_block
///
/// With decode_more < decode the cost of decoding grows sub-linearly: the weights are read once for all
/// sequences, so the more sequences decode at once, the cheaper a token is, down to decode_more.
struct CostModel {
  Nanos step = 1'000'000;               // of every step, whatever it computes
  uint64_t prefill_tokens_per_ms = 10;  // >= 1
  Nanos decode = 10'000'000;            // of one sequence alone
  Nanos decode_more = 100'000;          // of each further one
  Nanos swap_block = 100'000;           // of a block to the host, or back

  constexpr Nanos duration(uint64_t prefill_tokens, uint64_t decoding, uint64_t moved_blocks = 0) const {
    const uint64_t prefill = (prefill_tokens * 1'000'000 + prefill_tokens_per_ms - 1) / prefill_tokens_per_ms;
    return step + static_cast<Nanos>(prefill) +
           (decoding == 0 ? 0 : decode + static_cast<Nanos>(decoding - 1) * decode_more) +
           static_cast<Nanos>(moved_blocks) * swap_block;
  }

  /// The most prompt tokens that a step of `time` can compute if it does nothing else; 0 if none.
  constexpr uint64_t prefill_tokens_in(Nanos time) const {
    return time <= step ? 0 : static_cast<uint64_t>(time - step) * prefill_tokens_per_ms / 1'000'000;
  }

  /// The cost hints for a scheduler over such a device when `batch` (at least 1) sequences decode at once.
  /// Use max_num_seqs, since the hints matter only when sequences wait.
  constexpr control::CostHints hints(uint32_t batch) const {
    const auto least = [](Nanos time) { return time < 1 ? Nanos{1} : time; };
    return {.prefill_token = least(static_cast<Nanos>(1'000'000 / prefill_tokens_per_ms)),
            .decode_token = least((step + decode - decode_more) / batch + decode_more),
            .swap_block = least(swap_block)};
  }

  /// Throws Error naming an invalid value: negative, over 1,000 s, no prefill at all, or a decoding cost that
  /// grows faster than linearly.
  void check() const;
};

}  // namespace quire::backend::sim
