#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "model/config.h"

namespace quire::cli {

class Flags;

/// The sampling options of the commands; defaults come from the model's generation_config.json.
struct SamplingOptions {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  uint64_t seed = 0;
  uint32_t max_tokens = 0;  // 0: as many as the model's length allows
  bool ignore_eos = false;
  std::vector<std::string> stop;
};
void add_sampling_options(const Flags& command, SamplingOptions& options);

engine::GenerationRequest make_request(const SamplingOptions& options, const SamplingDefaults& defaults,
                                       std::vector<TokenId> prompt);

/// The result and the times of a finished generation. Times are on the engine's clock, in nanoseconds from
/// the submission of the request to the delivery of the tokens.
struct Generated {
  std::vector<std::string> texts;                 // by choice
  std::optional<control::FinishReason> finish{};  // of the first choice
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt
  uint32_t completion_tokens = 0;
  uint32_t first_tokens = 0;  // of these, the first tokens, which came together: one per choice
  bool at_the_end = false;    // all tokens came at the end, because the best of several answers were selected
  Nanos first_token = 0;
  Nanos last_token = 0;

  /// Prompt tokens computed per second, until the first token; 0 if unknown.
  double prefill_speed() const;
  /// Tokens of the answers per second, after the first ones; 0 if unknown.
  double decode_speed() const;
};

/// "12 prompt tokens (0 cached) at 410.2 tok/s, 20 generated, first after 29 ms, then 150.3 tok/s".
std::string describe(const Generated& done);

/// Runs one request and calls `on_text` on this thread as text of any choice arrives. `stop`: when it becomes
/// true, the request is aborted, and the output so far is the result, with FinishReason::kAbort. Throws Error
/// if the request is refused or fails. `clock`: the engine's.
Generated generate(engine::Engine& engine, const Clock& clock, engine::GenerationRequest request,
                   const std::function<void(std::string_view)>& on_text,
                   const std::atomic<bool>* stop = nullptr);

}  // namespace quire::cli
