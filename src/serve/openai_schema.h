#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/sampling_params.h"
#include "engine/beam_search.h"
#include "engine/engine.h"
#include "serve/api_fields.h"
#include "serve/tool_fields.h"

// The bodies of OpenAI's API (and vLLM's additions to it) as plain structs. Pure: no model, no network.
//
// Every field is checked for type and range; an error is a RequestError whose `param` names the field.
// Unknown fields are refused. What becomes of the fields that this server does not honour is in
// serve/api_fields.h. null is the same as omitting the field.
namespace quire::serve {

struct SchemaContext {
  uint32_t vocab_size = 0;
  SamplingDefaults defaults;
};

// Limits of a request.
inline constexpr uint32_t kMaxChoices = 128;
inline constexpr uint32_t kMaxPrompts = 1024;
inline constexpr uint32_t kMaxLogprobs = 20;
inline constexpr uint32_t kMaxStops = 16;
inline constexpr uint32_t kMaxStopBytes = 1024;  // of each
inline constexpr uint32_t kMaxStopTokens = 256;
inline constexpr uint32_t kMaxLogitBias = 1024;
inline constexpr uint32_t kMaxBadWords = 256;
inline constexpr uint32_t kMaxBadWordBytes = 1024;  // of each
inline constexpr uint32_t kMaxRequestIdBytes = 128;
/// Log probabilities of prompts in one answer, over all its choices.
inline constexpr uint64_t kMaxPromptLogprobs = 1 << 20;
inline constexpr float kMaxTemperature = 2.0F;
/// Temperatures between 0 and this are raised to it, as in vLLM: below it, a draw is the arg max unless it
/// overflows. The answer does not mention it.
inline constexpr float kMinTemperature = 0.01F;
inline constexpr float kMaxRepetitionPenalty = 10.0F;
/// For a completion without max_tokens, as in OpenAI's API. A chat answer may be as long as the model's
/// length allows.
inline constexpr uint32_t kDefaultCompletionTokens = 16;

/// The fields common to completions and chat.
///
/// | field                                   | range                                  | left out           |
/// |-----------------------------------------|----------------------------------------|--------------------|
/// | n                                       | 1 .. 128                               | 1                  |
/// | max_tokens (chat: max_completion_tokens)| 0 .. (chat: 1 ..)                      | 16 (chat: the rest)|
/// | temperature                             | 0 .. 2; (0, 0.01) is raised to 0.01    | generation_config, 1|
/// | top_p                                   | (0, 1]                                 | generation_config, 1|
/// | top_k                                   | 1 .., or 0 or -1: all                  | generation_config, 0|
/// | min_p                                   | 0 .. 1                                 | generation_config, 0|
/// | repetition_penalty                      | (0, 10]                                | generation_config, 1|
/// | presence_penalty, frequency_penalty     | -2 .. 2                                | 0                  |
/// | logit_bias                              | {"token id": -100 .. 100}, 1024 entries| none               |
/// | stop                                    | a string or up to 16, of 1..1024 bytes | none               |
/// | stop_token_ids                          | up to 256 ids                          | none               |
/// | seed                                    | any 64-bit integer                     | a random one       |
/// | logprobs (completions)                  | 0 .. 20                                | none               |
/// | logprobs, top_logprobs (chat)           | true, 0 .. 20                          | none               |
/// | logprob_token_ids                       | 1 .. 128 ids, with logprobs            | none               |
/// | prompt_logprobs                         | 0 .. 20, without stream                | none               |
/// | min_tokens                              | 0 .. max_tokens                        | 0                  |
/// | bad_words                               | up to 256 strings of 1..1024 bytes     | none               |
/// | allowed_token_ids                       | at least one id                        | any token          |
/// | truncate_prompt_tokens                  | 1 .., or -1: as many as fit            | none is cut off    |
/// | truncation_side                         | "left", "right": the end that is cut   | left               |
/// | request_id                              | 1..128 of A-Z a-z 0-9 - _ . :          | a random one       |
/// | best_of                                 | n .. 128                               | n                  |
/// | use_beam_search                         | true: with n, best_of <= 10            | false              |
/// | length_penalty                          | -10 .. 10, with use_beam_search        | 1                  |
/// | priority                                | +-1,000,000, lower first               | 0                  |
/// | ttft_deadline_ms                        | 1 .. 2^31-1                            | 10,000             |
///
/// With best_of > n or use_beam_search (see GenerationRequest) nothing is streamed. Beam search uses no
/// sampling fields: temperature, top_p, top_k, min_p and seed have no effect; penalties, logit_bias, stop,
/// logprob_token_ids, and what forbids tokens or scores the prompt are refused. `priority` and
/// `ttft_deadline_ms` apply to one scheduling policy each, the latter also where deadlines are promised; Api
/// refuses them elsewhere.
struct GenerationOptions {
  std::string model;                     // empty: omitted
  engine::GenerationRequest generation;  // everything except prompt and salt; seed only if has_seed
  bool has_seed = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;            // vLLM: prompt_token_ids and token_ids in the answer
  bool return_tokens_as_token_ids = false;  // vLLM: "token_id:N" as the token text of logprobs
  std::string grammar;                      // that each answer must follow, in XGrammar's syntax; empty: none
  std::vector<std::string> bad_words;
  int32_t prompt_logprobs = -1;        // -1: none
  int32_t truncate_prompt_tokens = 0;  // 0: no; -1: to what fits
  bool truncate_right = false;         // the last tokens of the prompt are cut off, not the first
  std::string request_id;              // a part of the answer's id; empty: a random one
  std::string user;
  std::string cache_salt;  // requests with different salts share no cached block
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationOptions options;
  std::vector<Prompt> prompts;  // at least one
  bool echo = false;            // the prompt before the answer, with its logprobs if there are any
  bool add_special_tokens = true;
};

/// The inputs of a chat template, and how its text is used.
struct ChatPrompt {
  json::object context;  // messages, tools, documents, add_generation_prompt, chat_template_kwargs
  bool continue_final_message = false;  // the prompt ends with the content of the last message
  bool add_special_tokens = false;
};

struct ChatRequest {
  GenerationOptions options;
  ChatPrompt prompt;
  ToolWishes tools;
  bool include_reasoning = true;
  std::string reasoning_effort;  // empty: not given
  std::optional<uint32_t> thinking_token_budget;
  std::optional<std::string> echo;  // the text before the answer
  bool return_prompt_text = false;  // vLLM: the text that the chat template wrote, in the answer
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatPrompt> prompt;
  bool add_special_tokens = true;  // for a plain prompt
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};

Expected<CompletionRequest> parse_completion(const json::value& body, const SchemaContext& context);
Expected<ChatRequest> parse_chat(const json::value& body, const SchemaContext& context);
/// The fields that the parser of `endpoint` reads, whether honoured or not.
std::vector<std::string_view> known_fields(ApiEndpoint endpoint);
Expected<TokenizeRequest> parse_tokenize(const json::value& body);
Expected<DetokenizeRequest> parse_detokenize(const json::value& body, const SchemaContext& context);

}  // namespace quire::serve
