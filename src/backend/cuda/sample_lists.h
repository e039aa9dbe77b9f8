#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/sample.h"
#include "backend/executor.h"
#include "base/ids.h"
#include "base/sampling_params.h"
#include "sample/penalties.h"
#include "sample/sampler.h"

namespace quire::backend::cuda {

static_assert(kMostLateTokens == kMostOpenSteps - 1);

/// The device keeps the last tokens of each slot: that at `position` has this place in SampleArgs::tokens.
inline constexpr uint32_t kPlacesOfSlot = 4;
static_assert(kPlacesOfSlot > kMostLateTokens);
inline uint32_t token_place(SlotId slot, uint32_t position) {
  return slot * kPlacesOfSlot + position % kPlacesOfSlot;
}

/// The rows of a launch of sample(), with the lists that they have parts of.
struct SampleLists {
  std::vector<SampleRow> rows;
  uint32_t num_drawn = 0;  // of them, those that have a part of the workspace
  std::vector<BiasedToken> biases;
  std::vector<CountedToken> counts;
  std::vector<ForbiddenToken> forbidden;
  std::vector<TokenId> rated;
  std::vector<uint32_t> masks;

  void clear();
  /// The row that was added last, and its parts of the lists.
  void remove_last(uint32_t vocabulary);
  /// What write() needs.
  size_t bytes() const;
  /// Writes all one after the other, and points `args` to the same from `device` on, where it will be copied
  /// to: at a multiple of 16 bytes.
  void write(std::byte* to, const std::byte* device, SampleArgs& args) const;
};

/// What is known on the host of how the sequence in one slot is sampled on the device.
class SlotSampling {
 public:
  /// As sample::SequenceSampler::reset.
  void reset(const SamplingParams& params, std::span<const TokenId> history, uint32_t prompt_length);
  const SamplingParams& params() const { return params_; }

  /// Adds the row of the token at `position`, but for SampleRow::logits. Tokens before it that have not been
  /// told to add() are late. `mask`: as of SequenceSampler::sample.
  void add_row(SlotId slot, uint32_t position, std::span<const uint32_t> mask, uint32_t vocabulary,
               SampleLists& lists) const;
  /// The next token of the sequence.
  void add(TokenId token);
  /// Of a row for which the device found no token: what the CPU's sampler says. All tokens before it have
  /// been told.
  sample::NoToken why_no_token(uint32_t position, std::span<const uint32_t> mask, uint32_t vocabulary) const;

 private:
  uint32_t num_late(uint32_t position) const;
  void add_bad_words(uint32_t position, SampleLists& lists) const;

  SamplingParams params_;
  uint32_t prompt_length_ = 0;
  std::vector<TokenId> history_;  // all tokens that are known, if params_.needs_history()
  sample::TokenCounts counts_;    // of them, if params_.has_penalties()
};

}  // namespace quire::backend::cuda
