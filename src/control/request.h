#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/prompt_wants.h"
#include "base/sampling_params.h"
#include "base/token_list.h"

namespace quire::control {

enum class FinishReason : uint8_t {
  kStop,    // an end-of-sequence token, a stop token or a stop string
  kLength,  // max_tokens, or the model's length
  kAbort,   // the client disconnected
  kError,   // the executor failed for this sequence
};

/// What is asked of a sequence, without its tokens.
struct SeqTerms {
  SeqId id = 0;
  uint32_t max_tokens = 0;  // 0: no token; it ends with its prompt (kLength)
  PromptWants wants;  // prefix hits and forks give it only what comes before the first row that it lacks
  std::vector<TokenId> stop_tokens;  // tokens that end the sequence when sampled (EOS ids included), sorted
  uint64_t salt = 0;                 // sequences with different salts share no block
  SamplingParams sampling;

  // For the scheduling policies.
  Nanos arrived = 0;                        // on the engine's clock
  Nanos ttft_deadline = 10'000'000'000;     // for the first token, from `arrived`
  int32_t priority = 0;                     // the lowest is first; within +-kMostPriority
  uint64_t tenant = 0;                      // the client for whom it counts
  std::optional<uint32_t> expected_tokens;  // length of the answer, if it is known

  /// The parent: a sequence that was added before, has the same salt, and whose tokens begin with this
  /// prompt, except perhaps its last token. This sequence waits until the parent has computed the common
  /// tokens, and then shares its blocks; the last one, partly filled, by copy-on-write. If the parent ends
  /// first, this is an ordinary sequence.
  std::optional<SeqId> fork_of;
};
/// One sequence as it enters the control plane. The caller has checked it: every token is in the vocabulary,
/// 1 <= prompt, prompt + max_tokens <= max_model_len.
struct SeqSpec : SeqTerms {
  TokenList prompt;  // while it waits, only what must compare tokens reads them
};
inline constexpr int32_t kMostPriority = 1'000'000;

/// What a sequence gets of its prompt: each row that it wants comes once and in order.
struct PromptEvent {
  SeqId id = 0;
  PromptYield yield;
};

/// A token of a sequence, or its end, as `commit` reports it.
struct SeqEvent {
  explicit SeqEvent(SeqId of = 0) : id(of) {}  // without it, all bytes would first be set to 0
  SeqId id = 0;
  std::optional<SampledToken> token;  // the stop token that ends a sequence is reported too
  std::optional<FinishReason> finish;
  std::optional<TokenId> stop_token;  // which one, when a stop token ended it
  uint32_t cached_tokens = 0;         // with the first token: prompt tokens from a prefix hit or a fork
  std::string error;                  // with FinishReason::kError
  bool refused = false;               // with `error`: SeqResult::refused
};

}  // namespace quire::control
