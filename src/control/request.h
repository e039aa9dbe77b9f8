#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"

namespace quire::control {

enum class FinishReason : uint8_t {
  kStop,    // an end-of-sequence token, a stop token or a stop string
  kLength,  // max_tokens, or the model's length
  kAbort,   // the client went away
  kError,   // the executor could not go on with it
};

/// One sequence as it enters the control plane. Already bounded by whoever made it: every token in the
/// vocabulary, 1 <= prompt, prompt + max_tokens <= max_model_len.
struct SeqSpec {
  SeqId id = 0;
  std::vector<TokenId> prompt;
  uint32_t max_tokens = 0;  // >= 1
  SamplingParams sampling;
  std::vector<TokenId> stop_tokens;  // sampled, these end the sequence (EOS ids among them), sorted
  uint64_t salt = 0;                 // sequences of different salts share no block
  /// Another sequence, added before, of the same salt, whose tokens begin with this one's prompt, but perhaps
  /// for the last token of it: this one waits until that one has computed them and then shares its blocks,
  /// the last and partly filled one by copy-on-write. If it ends before, this sequence is an ordinary one.
  std::optional<SeqId> fork_of;

  // What scheduling policies go by.
  Nanos arrived = 0;                        // on the clock of plan()'s `now`
  Nanos ttft_deadline = 10'000'000'000;     // after `arrived`, for the first token
  int32_t priority = 0;                     // lower first; within +-kMostPriority
  uint64_t tenant = 0;                      // who is served
  std::optional<uint32_t> expected_tokens;  // of the answer, if somebody knows
};
inline constexpr int32_t kMostPriority = 1'000'000;

/// One token of one sequence, or its end, as `commit` reports it.
struct SeqEvent {
  explicit SeqEvent(SeqId of = 0) : id(of) {}  // without it, all bytes would be set to 0 before
  SeqId id = 0;
  std::optional<SampledToken> token;  // the stop token that ends a sequence is reported too
  std::optional<FinishReason> finish;
  std::optional<TokenId> stop_token;  // which one, when a stop token ended it
  uint32_t cached_tokens = 0;         // with the first token: of the prompt, by a prefix hit or fork
  std::string error;                  // with FinishReason::kError
};

}  // namespace quire::control
