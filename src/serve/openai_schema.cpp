#include "serve/openai_schema.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "serve/chat_messages.h"
#include "serve/fields.h"
#include "serve/grammar_fields.h"

namespace quire::serve {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

// ---- Fields that completions and chat share ----

void read_stop(Fields& fields, engine::GenerationRequest& out) {
  const json::value* value = fields.get("stop");
  if (value == nullptr) return;
  const auto take = [&](const json::value& stop, std::string_view name) {
    const auto* text = stop.if_string();
    if (text == nullptr || text->empty() || text->size() > kMaxStopBytes) {
      fields.fail(name, fmt::format("must be a string of 1 to {} bytes", kMaxStopBytes));
    } else {
      out.stop.emplace_back(*text);
    }
  };
  const json::array* list = value->if_array();
  if (list == nullptr) {
    if (value->is_string()) return take(*value, "stop");
    return fields.fail("stop", "must be a string or an array of strings");
  }
  if (list->size() > kMaxStops) {
    return fields.fail("stop", fmt::format("must be a string or at most {} strings", kMaxStops));
  }
  for (size_t i = 0; i < list->size(); ++i) take((*list)[i], fmt::format("stop[{}]", i));
}

/// Token ids, each in the vocabulary. Notes the first that is not and stops there.
std::vector<TokenId> read_tokens(Fields& fields, std::string_view name, const json::array& list,
                                 int64_t vocab_size) {
  std::vector<TokenId> out;
  out.reserve(list.size());
  for (const json::value& item : list) {
    const auto id = whole_number(item, 0, vocab_size - 1);
    if (!id) {
      fields.fail(fmt::format("{}[{}]", name, out.size()),
                  fmt::format("must be a token id from 0 to {}", vocab_size - 1));
      return {};
    }
    out.push_back(static_cast<TokenId>(*id));
  }
  return out;
}

void read_bad_words(Fields& fields, GenerationOptions& out) {
  const json::array* list = fields.array("bad_words");
  if (list == nullptr) return;
  if (list->size() > kMaxBadWords) {
    return fields.fail("bad_words", fmt::format("must hold at most {} words", kMaxBadWords));
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const auto* word = (*list)[i].if_string();
    if (word == nullptr || word->size() > kMaxBadWordBytes ||
        word->find_first_not_of(' ') == json::string::npos) {
      return fields.fail(
          fmt::format("bad_words[{}]", i),
          fmt::format("must be a string of 1 to {} bytes, not of spaces alone", kMaxBadWordBytes));
    }
    out.bad_words.emplace_back(*word);
  }
}

void read_allowed_tokens(Fields& fields, const SchemaContext& context, SamplingParams& out) {
  const json::array* list = fields.array("allowed_token_ids");
  if (list == nullptr) return;
  if (list->empty()) return fields.fail("allowed_token_ids", "must hold at least one id");
  std::vector<TokenId> allowed = read_tokens(fields, "allowed_token_ids", *list, context.vocab_size);
  std::ranges::sort(allowed);
  const auto same = std::ranges::unique(allowed);
  allowed.erase(same.begin(), same.end());
  out.allowed_tokens = std::move(allowed);
}

/// Once it is known whether logprobs are wanted, and how many tokens.
void read_logprob_tokens(Fields& fields, const SchemaContext& context, engine::GenerationRequest& out) {
  constexpr const char* kName = "logprob_token_ids";
  const json::array* list = fields.array(kName);
  if (list == nullptr) return;
  if (list->empty() || list->size() > kMaxLogprobTokens) {
    return fields.fail(kName, fmt::format("must hold 1 to {} ids", kMaxLogprobTokens));
  }
  if (out.sampling.num_logprobs < 0) return fields.fail(kName, "needs logprobs");
  if (out.max_tokens == 0) return fields.fail(kName, "needs max_tokens of at least 1");
  std::vector<TokenId>& kept = out.sampling.logprob_tokens.write();
  for (const TokenId id : read_tokens(fields, kName, *list, context.vocab_size)) {
    if (std::ranges::find(kept, id) == kept.end()) kept.push_back(id);
  }
}

/// What forbids tokens, and what is said of the prompt.
void read_limits(Fields& fields, const SchemaContext& context, GenerationOptions& out) {
  out.generation.sampling.min_tokens =
      static_cast<uint32_t>(fields.integer("min_tokens", 0, kInt32Max).value_or(0));
  read_bad_words(fields, out);
  read_allowed_tokens(fields, context, out.generation.sampling);
  out.prompt_logprobs = static_cast<int32_t>(fields.integer("prompt_logprobs", 0, kMaxLogprobs).value_or(-1));
  if (out.prompt_logprobs >= 0 && out.stream) {
    fields.unsupported("prompt_logprobs", "is not supported with stream: true");
  }
  const auto most = fields.integer("truncate_prompt_tokens", -1, kInt32Max);
  if (most && *most == 0) fields.fail("truncate_prompt_tokens", "must be -1 or at least 1");
  out.truncate_prompt_tokens = static_cast<int32_t>(most.value_or(0));
  const std::string side = fields.string("truncation_side").value_or("left");
  if (side != "left" && side != "right") fields.fail("truncation_side", "must be \"left\" or \"right\"");
  out.truncate_right = side == "right";
}

/// Once max_tokens is known.
void check_min_tokens(Fields& fields, const engine::GenerationRequest& request) {
  if (!request.max_tokens || request.sampling.min_tokens <= *request.max_tokens) return;
  fields.fail("min_tokens", fmt::format("must be at most max_tokens ({})", *request.max_tokens));
}

void read_stop_tokens(Fields& fields, const SchemaContext& context, engine::GenerationRequest& out) {
  const json::array* list = fields.array("stop_token_ids");
  if (list == nullptr) return;
  if (list->size() > kMaxStopTokens) {
    return fields.fail("stop_token_ids", fmt::format("must hold at most {} ids", kMaxStopTokens));
  }
  out.stop_token_ids = read_tokens(fields, "stop_token_ids", *list, context.vocab_size);
}

void read_logit_bias(Fields& fields, const SchemaContext& context, SamplingParams& out) {
  const json::object* map = fields.object("logit_bias");
  if (map == nullptr) return;
  if (map->size() > kMaxLogitBias) {
    return fields.fail("logit_bias", fmt::format("must hold at most {} entries", kMaxLogitBias));
  }
  Fields inner(*map, "logit_bias.");
  std::vector<std::pair<TokenId, float>> biases;
  for (const auto& [key, value] : *map) {
    const std::string_view digits = key;
    TokenId id = -1;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    const bool whole = failed == std::errc() && end == digits.data() + digits.size();
    if (!whole || digits.starts_with('-') || static_cast<uint32_t>(id) >= context.vocab_size) {
      return fields.fail("logit_bias", fmt::format("must have token ids from 0 to {} as keys",
                                                   int64_t{context.vocab_size} - 1));
    }
    if (const auto bias = inner.number(digits, -100, 100)) biases.emplace_back(id, *bias);
  }
  if (auto error = inner.finish()) return fields.fail(std::move(*error));
  std::sort(biases.begin(), biases.end());
  // "7" and "07" are two keys and one token.
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(biases.begin(), biases.end(), same) != biases.end()) {
    fields.fail("logit_bias", "must name a token once");
  }
  out.logit_bias = std::move(biases);
}

void read_sampling(Fields& fields, const SchemaContext& context, SamplingParams& out) {
  const SamplingDefaults& defaults = context.defaults;
  out.temperature =
      fields.number("temperature", 0, kMaxTemperature).value_or(defaults.temperature.value_or(1.0F));
  if (out.temperature > 0 && out.temperature < kMinTemperature) out.temperature = kMinTemperature;
  out.top_p = fields.number_above("top_p", 0, 1).value_or(defaults.top_p.value_or(1.0F));
  out.min_p = fields.number("min_p", 0, 1).value_or(defaults.min_p.value_or(0.0F));
  out.repetition_penalty = fields.number_above("repetition_penalty", 0, kMaxRepetitionPenalty)
                               .value_or(defaults.repetition_penalty.value_or(1.0F));
  out.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0.0F);
  out.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0.0F);
  const auto top_k = fields.integer("top_k", -1, kInt32Max);
  out.top_k = std::max(0, static_cast<int32_t>(top_k.value_or(defaults.top_k.value_or(0))));
  read_logit_bias(fields, context, out);
}

void read_seed(Fields& fields, GenerationOptions& out) {
  const json::value* value = fields.get("seed");
  if (value == nullptr) return;
  // A value above the signed range is a valid seed too.
  if (value->is_uint64()) {
    out.generation.sampling.seed = value->get_uint64();
    out.has_seed = true;
    return;
  }
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const auto seed = whole_number(*value, kLeast, std::numeric_limits<int64_t>::max());
  if (!seed) {
    fields.fail("seed", fmt::format("must be an integer from {} to {}", kLeast,
                                    std::numeric_limits<uint64_t>::max()));
  }
  out.has_seed = seed.has_value();
  out.generation.sampling.seed = static_cast<uint64_t>(seed.value_or(0));
}

void read_streaming(Fields& fields, GenerationOptions& out) {
  out.stream = fields.boolean("stream", false);
  const json::object* given = fields.object("stream_options");
  if (given == nullptr) return;
  if (!out.stream) return fields.fail("stream_options", "needs stream: true");
  Fields inner(*given, "stream_options.");
  out.include_usage = inner.boolean("include_usage", false);
  out.continuous_usage = inner.boolean("continuous_usage_stats", false) && out.include_usage;
  // OpenAI pads chunks with noise against traffic analysis, unless told not to; here nothing is padded.
  if (inner.boolean("include_obfuscation", false)) inner.unsupported("include_obfuscation");
  if (auto error = inner.finish()) fields.fail(std::move(*error));
}

/// Of a beam search, which takes the model's probabilities as they are. Values that change none may be given,
/// and a temperature of 0, which vLLM's clients send with it.
void refuse_filters(Fields& fields) {
  const auto refuse_unless = [&](const char* name, auto... harmless) {
    const json::value* value = fields.get(name);
    if (value == nullptr || !value->is_number()) return;
    const auto given = value->to_number<double>();
    if (((given != harmless) && ...)) fields.unsupported(name, "is not supported with use_beam_search");
  };
  refuse_unless("temperature", 0.0, 1.0);
  refuse_unless("top_p", 1.0);
  refuse_unless("top_k", 0.0, -1.0);
  refuse_unless("min_p", 0.0);
}

/// best_of and beam search: a result that is known only at the end is not streamed.
void read_search(Fields& fields, GenerationOptions& out) {
  engine::GenerationRequest& request = out.generation;
  request.best_of = static_cast<uint32_t>(fields.integer("best_of", 1, kMaxChoices).value_or(request.n));
  if (request.best_of < request.n) fields.fail("best_of", fmt::format("must be at least n ({})", request.n));
  request.beam_search = fields.boolean("use_beam_search", false);
  const auto penalty = fields.number("length_penalty", -10, 10);
  request.length_penalty = penalty.value_or(1.0F);
  if (!request.beam_search) {
    if (penalty && *penalty != 1.0F) fields.fail("length_penalty", "needs use_beam_search: true");
    if (out.stream && request.best_of > request.n)
      fields.unsupported("stream", "is not supported with best_of");
    return;
  }
  if (request.best_of > engine::kMaxBeamWidth) {
    fields.fail(request.n > engine::kMaxBeamWidth ? "n" : "best_of",
                fmt::format("must be at most {} with use_beam_search", engine::kMaxBeamWidth));
  }
  if (out.stream) fields.unsupported("stream", "is not supported with use_beam_search");
  if (!out.grammar.empty()) fields.unsupported("use_beam_search", "is not supported with a grammar");
  refuse_filters(fields);
  for (const char* name :
       {"stop", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "min_tokens",
        "bad_words", "allowed_token_ids", "prompt_logprobs", "logprob_token_ids", "thinking_token_budget"}) {
    if (fields.get(name) != nullptr) fields.unsupported(name, "is not supported with use_beam_search");
  }
}

/// It stands in logs and may be repeated in headers by proxies, so it has no character that would need
/// quotes.
void read_request_id(Fields& fields, GenerationOptions& out) {
  const auto id = fields.string("request_id");
  if (!id) return;
  const bool plain = std::ranges::all_of(*id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  });
  if (!plain || id->empty() || id->size() > kMaxRequestIdBytes) {
    return fields.fail("request_id",
                       fmt::format("must have 1 to {} letters, digits and -_.:", kMaxRequestIdBytes));
  }
  out.request_id = *id;
}

GenerationOptions read_options(Fields& fields, const SchemaContext& context) {
  GenerationOptions out;
  engine::GenerationRequest& request = out.generation;
  out.model = fields.string("model").value_or("");
  request.n = static_cast<uint32_t>(fields.integer("n", 1, kMaxChoices).value_or(1));
  read_sampling(fields, context, request.sampling);
  read_seed(fields, out);
  read_stop(fields, request);
  read_stop_tokens(fields, context, request);
  request.include_stop_str_in_output = fields.boolean("include_stop_str_in_output", false);
  request.ignore_eos = fields.boolean("ignore_eos", false);
  request.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  read_streaming(fields, out);
  read_limits(fields, context, out);
  out.grammar = read_grammar(fields);
  read_search(fields, out);
  out.return_token_ids = fields.boolean("return_token_ids", false);
  out.return_tokens_as_token_ids = fields.boolean("return_tokens_as_token_ids", false);
  out.user = fields.string("user", 1024).value_or("");
  out.cache_salt = fields.string("cache_salt", 1024).value_or("");

  request.priority = static_cast<int32_t>(
      fields.integer("priority", -control::kMostPriority, control::kMostPriority).value_or(0));
  if (const auto ms = fields.integer("ttft_deadline_ms", 1, kInt32Max))
    request.ttft_deadline = *ms * 1'000'000;
  read_request_id(fields, out);
  return out;
}

template <class T>
Expected<T> finished(const Fields& fields, T value) {
  if (auto error = fields.finish()) return tl::unexpected(std::move(*error));
  return value;
}

Expected<const json::object*> as_object(const json::value& body) {
  if (const json::object* object = body.if_object()) return object;
  return refuse(RequestErrorCode::kInvalid, "the body must be a JSON object");
}

// ---- Completions ----

/// One prompt as text, or many; or the ids of one, or of many.
std::vector<Prompt> read_prompts(Fields& fields, const SchemaContext& context) {
  constexpr std::string_view kForms =
      "must be a string, an array of strings, an array of token ids, or an array of arrays of token ids";
  const json::value* value = fields.get("prompt");
  if (value == nullptr) {
    fields.fail("prompt", "is missing");
    return {};
  }
  // Not `return {...}`: an initializer list copies, and libstdc++ 12 destroys what was never made when the
  // copy of a variant finds no memory.
  std::vector<Prompt> out;
  if (const auto* text = value->if_string()) {
    out.emplace_back(std::string(*text));
    return out;
  }
  const json::array* list = value->if_array();
  if (list == nullptr || list->empty()) {
    fields.fail("prompt", list == nullptr ? kForms : "must not be empty");
    return {};
  }
  if (list->front().is_number()) {
    out.emplace_back(read_tokens(fields, "prompt", *list, context.vocab_size));
    return out;
  }
  if (list->size() > kMaxPrompts) {
    fields.fail("prompt", fmt::format("must hold at most {} prompts", kMaxPrompts));
    return {};
  }
  const bool texts = list->front().is_string();
  for (size_t i = 0; i < list->size() && fields.ok(); ++i) {
    const json::value& item = (*list)[i];
    const std::string name = fmt::format("prompt[{}]", i);
    if (texts && item.is_string()) {
      out.emplace_back(std::string(item.get_string()));
    } else if (!texts && item.is_array() && !item.get_array().empty()) {
      out.emplace_back(read_tokens(fields, name, item.get_array(), context.vocab_size));
    } else if (item.is_array()) {
      fields.fail(name, texts ? "must be a string like the first one" : "must not be empty");
    } else {
      fields.fail(texts ? name : "prompt", texts ? "must be a string like the first one" : kForms);
    }
  }
  return out;
}

// ---- Chat ----

void read_chat_logprobs(Fields& fields, SamplingParams& out) {
  const bool wanted = fields.boolean("logprobs", false);
  const auto top = fields.integer("top_logprobs", 0, kMaxLogprobs);
  if (top && *top > 0 && !wanted) return fields.fail("top_logprobs", "needs logprobs: true");
  if (wanted) out.num_logprobs = static_cast<int32_t>(top.value_or(0));
}

void read_chat_max_tokens(Fields& fields, engine::GenerationRequest& out) {
  // max_tokens is the older name; the newer one wins, as in vLLM.
  const auto older = fields.integer("max_tokens", 1, kInt32Max);
  const auto newer = fields.integer("max_completion_tokens", 1, kInt32Max);
  if (older || newer) out.max_tokens = static_cast<uint32_t>(newer.value_or(older.value_or(0)));
}

/// As in vLLM: the answer's role is that of the last message where no message is begun for the assistant.
void read_chat_echo(Fields& fields, ChatRequest& out) {
  if (!fields.boolean("echo", false) || !fields.ok()) return;
  const json::object& last = out.prompt.context.at("messages").as_array().back().as_object();
  const bool same = out.prompt.context.at("add_generation_prompt") == false || last.at("role") == "assistant";
  const json::value* content = last.if_contains("content");
  if (same && content != nullptr && content->is_string()) out.echo.emplace(content->get_string());
}

CompletionRequest read_completion(Fields& fields, const SchemaContext& context) {
  CompletionRequest out;
  out.options = read_options(fields, context);
  engine::GenerationRequest& request = out.options.generation;
  out.prompts = read_prompts(fields, context);
  out.echo = fields.boolean("echo", false);
  out.add_special_tokens = fields.boolean("add_special_tokens", true);
  request.max_tokens =
      static_cast<uint32_t>(fields.integer("max_tokens", 0, kInt32Max).value_or(kDefaultCompletionTokens));
  request.sampling.num_logprobs =
      static_cast<int32_t>(fields.integer("logprobs", 0, kMaxLogprobs).value_or(-1));
  read_logprob_tokens(fields, context, request);
  check_min_tokens(fields, request);
  // One reading of the prompt serves both.
  if (out.echo) request.wants.logprobs = request.sampling.num_logprobs;
  request.wants.logprobs = std::max(request.wants.logprobs, out.options.prompt_logprobs);
  read_unused_fields(fields, ApiEndpoint::kCompletions);
  return out;
}

ChatRequest read_chat(Fields& fields, const SchemaContext& context) {
  ChatRequest out;
  out.options = read_options(fields, context);
  out.prompt = read_chat_prompt(fields);
  out.tools = read_tool_wishes(fields, out.prompt.context);
  out.include_reasoning = fields.boolean("include_reasoning", true);
  out.reasoning_effort = read_reasoning_effort(fields);
  const auto most = fields.integer("thinking_token_budget", -1, kInt32Max);
  if (most && *most >= 0) out.thinking_token_budget = static_cast<uint32_t>(*most);
  read_chat_max_tokens(fields, out.options.generation);
  check_min_tokens(fields, out.options.generation);
  read_chat_logprobs(fields, out.options.generation.sampling);
  read_logprob_tokens(fields, context, out.options.generation);
  out.options.generation.wants.logprobs = out.options.prompt_logprobs;
  read_chat_echo(fields, out);
  out.return_prompt_text = fields.boolean("return_prompt_text", false);
  read_unused_fields(fields, ApiEndpoint::kChat);
  return out;
}

}  // namespace

Expected<CompletionRequest> parse_completion(const json::value& body, const SchemaContext& context) {
  const auto object = as_object(body);
  if (!object) return tl::unexpected(object.error());
  Fields fields(**object);
  CompletionRequest out = read_completion(fields, context);
  return finished(fields, std::move(out));
}

Expected<ChatRequest> parse_chat(const json::value& body, const SchemaContext& context) {
  const auto object = as_object(body);
  if (!object) return tl::unexpected(object.error());
  Fields fields(**object);
  ChatRequest out = read_chat(fields, context);
  return finished(fields, std::move(out));
}

std::vector<std::string_view> known_fields(ApiEndpoint endpoint) {
  const json::object body;
  Fields fields(body);
  if (endpoint == ApiEndpoint::kChat) {
    static_cast<void>(read_chat(fields, {}));
  } else {
    static_cast<void>(read_completion(fields, {}));
  }
  return fields.known();
}

Expected<TokenizeRequest> parse_tokenize(const json::value& body) {
  const auto object = as_object(body);
  if (!object) return tl::unexpected(object.error());
  Fields fields(**object);
  TokenizeRequest out;
  out.model = fields.string("model").value_or("");
  out.return_token_strs = fields.boolean("return_token_strs", false);
  if (fields.get("messages") != nullptr) {
    if (fields.get("prompt") != nullptr) fields.fail("prompt", "and messages cannot both be given");
    out.prompt = read_chat_prompt(fields);
  } else {
    auto text = fields.string("prompt");
    if (!text) fields.fail("prompt", "is missing");
    out.prompt = std::move(text).value_or("");
    out.add_special_tokens = fields.boolean("add_special_tokens", true);
  }
  return finished(fields, std::move(out));
}

Expected<DetokenizeRequest> parse_detokenize(const json::value& body, const SchemaContext& context) {
  const auto object = as_object(body);
  if (!object) return tl::unexpected(object.error());
  Fields fields(**object);
  DetokenizeRequest out;
  out.model = fields.string("model").value_or("");
  const json::array* tokens = fields.array("tokens");
  if (tokens == nullptr) {
    fields.fail("tokens", "is missing");
  } else {
    out.tokens = read_tokens(fields, "tokens", *tokens, context.vocab_size);
  }
  return finished(fields, std::move(out));
}

}  // namespace quire::serve
