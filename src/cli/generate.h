#pragma once

#include <string_view>

#include "engine/engine.h"
#include "model/config.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct LocalEngine;

/// Sampling as the commands take it; what is not given comes from the model's generation_config.json.
struct SamplingOptions {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  uint64_t seed = 0;
  uint32_t max_tokens = 0;  // 0: what the model's length leaves
  bool ignore_eos = false;
  std::vector<std::string> stop;
};
void add_sampling_options(CLI::App& command, SamplingOptions& options);

GenerationRequest make_request(const SamplingOptions& options, const SamplingDefaults& defaults,
                               std::vector<TokenId> prompt);

/// What a finished generation took.
struct Generated {
  std::vector<std::string> texts;  // by choice
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  double first_token_seconds = 0;
  double seconds = 0;
};

/// Runs one request and calls `on_text` on this thread as text of any choice arrives. Throws Error if it is
/// refused or fails.
Generated generate(LocalEngine& local, GenerationRequest request,
                   const std::function<void(std::string_view)>& on_text);

}  // namespace quire::cli
