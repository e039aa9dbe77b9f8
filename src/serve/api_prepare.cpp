// The part of Api that runs on the workers: turns a body into requests for the engine.
#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_memory.h"
#include "base/trim.h"
#include "chat/chat_templates.h"
#include "serve/api.h"
#include "serve/chat_messages.h"
#include "serve/json_text.h"
#include "serve/tool_fields.h"

namespace quire::serve {
namespace {

constexpr size_t kMaxJsonDepth = 64;

template <class T, class U>
Expected<T> failed(const Expected<U>& result) {
  return tl::unexpected(result.error());
}

/// Appends the ids with commas between them, with little excess capacity.
void append_id_list(const std::vector<TokenId>& ids, std::string& out) {
  constexpr size_t kRest = 64;
  size_t bytes = ids.size() + kRest;
  for (const TokenId id : ids) bytes += fmt::formatted_size("{}", id);
  out.reserve(out.size() + bytes);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out += fmt::format_int(ids[i]).c_str();
  }
}

/// Ends work for a client that has disconnected.
Expected<void> check_client(const HttpRequest& request) {
  if (!request.abandoned.stop_requested()) return {};
  return refuse(RequestErrorCode::kInvalid, "the client has closed the connection");
}

/// Refuses an answer with too many log probabilities of prompts: each takes some 60 bytes of JSON, in every
/// choice again.
Expected<void> check_scores(const AnswerStyle& style,
                            const std::vector<engine::GenerationRequest>& requests) {
  const auto each =
      static_cast<uint64_t>(1 + style.echo_logprobs) + static_cast<uint64_t>(1 + style.prompt_logprobs);
  uint64_t scores = 0;
  for (const engine::GenerationRequest& request : requests) scores += request.prompt.size() * each * style.n;
  if (scores <= kMaxPromptLogprobs) return {};
  return refuse(
      RequestErrorCode::kInvalid,
      fmt::format("The answer would have {} log probabilities of prompts, but at most {} are given: ask "
                  "for fewer of each token, or send fewer prompts.",
                  scores, kMaxPromptLogprobs),
      style.prompt_logprobs >= 0 ? "prompt_logprobs" : "echo");
}

/// Sets what a template reads of the effort, unless the request has set it itself: its own variable, or
/// enable_thinking for "none".
Expected<void> fit_reasoning(const std::string& effort, const chat::ChatTemplate& form,
                             json::object& context) {
  if (effort.empty()) return {};
  if (form.has_variable("reasoning_effort")) {
    context.emplace("reasoning_effort", effort);
    return {};
  }
  if (form.has_variable("enable_thinking")) {
    context.emplace("enable_thinking", effort != "none");
    return {};
  }
  if (effort == "none") return {};  // as it does without
  return refuse(RequestErrorCode::kInvalid,
                "reasoning_effort is not supported: this model's chat template reads neither "
                "reasoning_effort nor enable_thinking",
                "reasoning_effort");
}

Expected<void> check_tools(const chat::ChatTemplate& form, const answer::ToolFormat* format) {
  if (!reads_tools(form)) {
    return refuse(RequestErrorCode::kInvalid,
                  "tools is not supported: this model's chat template does not read tools, so the model "
                  "would not know of them",
                  "tools");
  }
  if (format != nullptr) return {};
  return refuse(RequestErrorCode::kInvalid,
                "tools is not supported: how this model writes calls is not known from its chat template, "
                "and the server has not been told (quire serve --tool-call-parser)",
                "tools");
}

/// What the answer is to continue; empty: nothing.
std::string continued_text(const ChatPrompt& prompt) {
  if (!prompt.continue_final_message) return {};
  return std::string(prompt.context.at("messages").as_array().back().at("content").as_string());
}

/// Fits the format to the prompt, whose end may have opened the reasoning, or closed it. `continued`: the
/// content with which it ends and which the answer continues.
void fit_to_prompt(answer::AnswerFormat& format, std::string_view prompt, std::string_view continued) {
  if (format.reasoning == nullptr) return;
  const std::string_view text = trim(prompt);
  const size_t opened = continued.rfind(format.reasoning->open);
  const bool inside =
      opened != continued.npos && continued.find(format.reasoning->close, opened) == continued.npos;
  if (inside || text.ends_with(format.reasoning->open)) {
    format.begins_in_reasoning = true;
  } else if (text.ends_with(format.reasoning->close)) {
    format.reasoning = nullptr;
  }
}

}  // namespace

Expected<json::value> Api::parse_body(const HttpRequest& request) const {
  try {
    return parse_json(request.body, "request body", kMaxJsonDepth,
                      json::make_shared_resource<JsonMemory>(config_.max_json_bytes));
  } catch (const Error& error) {
    return refuse(RequestErrorCode::kInvalid, error.what());
  }
}

Expected<void> Api::check_model(std::string_view name) const {
  const auto& names = config_.served_names;
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return {};
  return refuse(
      RequestErrorCode::kNotFound,
      fmt::format("The model '{}' does not exist; this server has '{}'.", name.substr(0, 200), names.front()),
      "model");
}

/// More sequences than can run and wait could never be accepted, so "try again later" would be wrong.
Expected<void> Api::check_count(size_t num_prompts, const engine::GenerationRequest& request) const {
  const uint64_t most = engine_.config().max_sequences();
  const uint64_t each = request.sequences();
  if (num_prompts * each <= most) return {};
  const char* field = request.best_of > request.n ? "best_of" : "n";
  return refuse(RequestErrorCode::kInvalid,
                fmt::format("{} prompt{} with {} = {} are {} sequences, but at most {} can run and wait here",
                            num_prompts, num_prompts == 1 ? "" : "s", field, each, num_prompts * each, most),
                each > most ? field : "prompt");
}

/// A field that the scheduling policy would not use is refused, not ignored.
Expected<void> Api::check_policy(const engine::GenerationRequest& request) const {
  const control::SchedulerConfig& scheduler = engine_.config().scheduler;
  const control::SchedulingKind policy = scheduler.scheduling;
  const bool heeds_priority = policy == control::SchedulingKind::kPriority ||
                              scheduler.victim == control::VictimKind::kLowestPriority;
  const auto ignored = [&](const char* field, const char* wanted) {
    return refuse(RequestErrorCode::kInvalid,
                  fmt::format("{} has no effect with this server's scheduling policy, {}: it needs quire "
                              "serve --scheduling-policy {}",
                              field, control::kSchedulingNames[static_cast<size_t>(policy)], wanted),
                  field);
  };
  if (request.priority != 0 && !heeds_priority) {
    return ignored("priority", "priority or --victim-policy priority");
  }
  if (request.ttft_deadline && policy != control::SchedulingKind::kSlo && !engine_.promises())
    return ignored("ttft_deadline_ms", "slo, or --admission slo with --shadow");
  return {};
}

/// Whether the header x-quire-predict asks for predictions. A wish that cannot be fulfilled is refused too.
Expected<bool> Api::wants_prediction(const HttpRequest& request) const {
  const std::string_view said = request.wants_prediction;
  const auto wrong = [](const char* what) {
    return refuse(RequestErrorCode::kInvalid, what, "x-quire-predict");
  };
  if (said.empty() || said == "0") return false;
  if (said != "1") return wrong("the header x-quire-predict must be 0 or 1, and there must be one of it");
  if (engine_.foresees()) return true;
  return wrong("x-quire-predict: this server predicts nothing; it needs quire serve --shadow");
}

/// A tokenizer's patterns have limits, which a text may run into.
Expected<std::vector<TokenId>> Api::encode(std::string_view text, bool add_special_tokens,
                                           std::string_view param) const {
  try {
    return model_.tokenizer.encode(text, add_special_tokens);
  } catch (const Error& error) {
    return refuse(RequestErrorCode::kInvalid, fmt::format("{} cannot be tokenized: {}", param, error.what()),
                  std::string(param));
  }
}

Expected<std::string> Api::decode(const std::vector<TokenId>& ids, bool skip_special_tokens,
                                  std::string_view param) const {
  try {
    return model_.tokenizer.decode(ids, skip_special_tokens);
  } catch (const Error& error) {
    return refuse(RequestErrorCode::kInvalid, fmt::format("{} has no text: {}", param, error.what()),
                  std::string(param));
  }
}

/// As in vLLM: a word is forbidden at the beginning of a text, and after a space where that makes other
/// tokens as many.
Expected<void> Api::tokenize_bad_words(GenerationOptions& options) const {
  for (const std::string& word : options.bad_words) {
    const std::string_view bare = std::string_view(word).substr(word.find_first_not_of(' '));
    auto first = encode(bare, false, "bad_words");
    if (!first) return failed<void>(first);
    auto spaced = encode(fmt::format(" {}", bare), false, "bad_words");
    if (!spaced) return failed<void>(spaced);
    auto& words = options.generation.sampling.bad_words.write();
    const bool other =
        spaced->size() == first->size() && !first->empty() && spaced->front() != first->front();
    if (!first->empty()) words.push_back(std::move(*first));
    if (other) words.push_back(std::move(*spaced));
  }
  return {};
}

/// Keeps the last tokens of a prompt, or the first. Returns whether there were more.
bool Api::truncate(const GenerationOptions& options, std::vector<TokenId>& prompt) const {
  if (options.truncate_prompt_tokens == 0) return false;
  uint64_t most = static_cast<uint64_t>(options.truncate_prompt_tokens);
  if (options.truncate_prompt_tokens < 0) {
    const uint64_t answer = std::max(1U, options.generation.max_tokens.value_or(1));
    const uint64_t longest = engine_.config().scheduler.max_model_len;
    if (longest <= answer) return false;  // the engine refuses it
    most = longest - answer;
  }
  if (prompt.size() <= most) return false;
  if (options.truncate_right) {
    prompt.resize(most);
  } else {
    prompt.erase(prompt.begin(), prompt.end() - static_cast<ptrdiff_t>(most));
  }
  return true;
}

AnswerStyle Api::make_style(AnswerKind kind, const GenerationOptions& options) const {
  AnswerStyle style;
  style.kind = kind;
  style.id = (kind == AnswerKind::kChat ? "chatcmpl-" : "cmpl-") +
             (options.request_id.empty() ? random_hex(16) : options.request_id);
  style.created = std::time(nullptr);
  style.model = options.model.empty() ? config_.served_names.front() : options.model;
  style.n = options.generation.n;
  style.logprobs = options.generation.sampling.num_logprobs >= 0;
  style.include_usage = options.include_usage;
  style.continuous_usage = options.continuous_usage;
  style.prompt_logprobs = options.prompt_logprobs;
  style.return_token_ids = options.return_token_ids;
  style.tokens_as_ids = options.return_tokens_as_token_ids;
  style.skips_specials = options.generation.skip_special_tokens;
  style.eos = engine_.config().eos;
  return style;
}

engine::GenerationRequest Api::make_request(const HttpRequest& request, const GenerationOptions& options,
                                            std::vector<TokenId> prompt) const {
  engine::GenerationRequest out = options.generation;
  if (prompt.empty() && model_.bos) prompt.push_back(*model_.bos);
  out.prompt = std::move(prompt);
  if (!options.has_seed) out.sampling.seed = random_seed();
  out.salt =
      block_salt(request.tenant, config_.isolate_users ? options.user : std::string(), options.cache_salt);
  // With keys the tenant is the key, otherwise the user that the client names.
  out.tenant = request.tenant != 0 ? request.tenant : block_salt(0, options.user, {});
  out.waits_as = request.client;
  out.wants_outlook = wants_prediction(request).value_or(false);
  return out;
}

Expected<Api::Job> Api::prepare_completion(const HttpRequest& request) const {
  auto body = parse_body(request);
  if (!body) return failed<Job>(body);
  auto parsed = parse_completion(*body, schema_);
  if (!parsed) return failed<Job>(parsed);
  if (auto known = check_model(parsed->options.model); !known) return failed<Job>(known);
  if (auto heeded = check_policy(parsed->options.generation); !heeded) return failed<Job>(heeded);
  if (auto wish = wants_prediction(request); !wish) return failed<Job>(wish);
  const auto fits = check_count(parsed->prompts.size(), parsed->options.generation);
  if (!fits) return failed<Job>(fits);

  if (auto known = tokenize_bad_words(parsed->options); !known) return failed<Job>(known);
  Job job;
  job.style = make_style(AnswerKind::kCompletion, parsed->options);
  if (parsed->echo) job.style.echo_logprobs = parsed->options.generation.sampling.num_logprobs;
  job.stream = parsed->options.stream;
  job.grammar.content = std::move(parsed->options.grammar);
  for (Prompt& prompt : parsed->prompts) {
    if (auto waits = check_client(request); !waits) return failed<Job>(waits);
    std::vector<TokenId> ids;
    auto* text = std::get_if<std::string>(&prompt);
    if (text == nullptr) {
      ids = std::move(std::get<std::vector<TokenId>>(prompt));
    } else {
      auto encoded = encode(*text, parsed->add_special_tokens, "prompt");
      if (!encoded) return failed<Job>(encoded);
      ids = std::move(*encoded);
    }
    const bool cut = truncate(parsed->options, ids);
    if (parsed->echo && text != nullptr && !cut) {
      job.style.echo.push_back(std::move(*text));
    } else if (parsed->echo) {
      auto decoded = decode(ids, true, "prompt");
      if (!decoded) return failed<Job>(decoded);
      job.style.echo.push_back(std::move(*decoded));
    }
    job.requests.push_back(make_request(request, parsed->options, std::move(ids)));
    job.requests.back().name = job.style.id;
    if (job.style.needs_prompt_ids()) job.style.prompt_ids.push_back(job.requests.back().prompt);
  }
  if (auto fine = check_scores(job.style, job.requests); !fine) return failed<Job>(fine);
  return job;
}

/// Makes the answer's rules look for calls, and writes the grammars that enforce them.
Expected<void> Api::offer_tools(ChatRequest& chat, const chat::ChatTemplate& form, AnswerRules& rules,
                                AnswerGrammar& grammar) const {
  ToolWishes& wishes = chat.tools;
  const std::string& calls = config_.tool_call_parser;
  rules.format.tools =
      calls == "auto" ? answer::tool_format_of(form.source()) : answer::find_tool_format(calls);
  if (auto fine = check_tools(form, rules.format.tools); !fine) return fine;
  give_tools(chat.prompt.context, form);
  const answer::ToolFormat& format = *rules.format.tools;
  const bool beside_content = !grammar.content.empty() && !wishes.needed;
  if (wishes.needed || beside_content || !wishes.strict.empty()) {
    if (chat.options.generation.beam_search) {
      return refuse(RequestErrorCode::kInvalid,
                    "tools whose calls are enforced (tool_choice, strict) are not supported with "
                    "use_beam_search",
                    "tools");
    }
    const MarkTokens tokens = special_marks(rules.format);
    auto written = wishes.needed || beside_content ? tool_grammar(wishes, format, tokens, beside_content)
                                                   : strict_tool_grammar(wishes, format, tokens);
    if (!written) return failed<void>(written);
    grammar.calls = std::move(*written);
    if (wishes.needed) grammar.content.clear();  // the answer has none
    if (!wishes.needed && !beside_content) grammar.marks = certain_marks(wishes, format);
  }
  rules.format.one_call = !wishes.parallel;
  rules.tools = std::move(wishes.tools);
  if (format.syntax != answer::CallSyntax::kXml) {
    for (auto& [name, parameters] : rules.tools) parameters = {};  // only their names are needed
  }
  return {};
}

/// How the answer will be divided; null if all of it is content. Sets the variables of the template that
/// speak of reasoning, and adds to the grammar what enforces calls.
Expected<std::shared_ptr<AnswerRules>> Api::make_rules(ChatRequest& chat, AnswerGrammar& grammar) const {
  using Result = Expected<std::shared_ptr<AnswerRules>>;
  const auto chosen = model_.chat_templates.choose(chat.prompt.context);
  if (!chosen) return Result();  // render_chat says why
  const chat::ChatTemplate& form = **chosen;
  if (auto fits = fit_reasoning(chat.reasoning_effort, form, chat.prompt.context); !fits)
    return tl::unexpected(std::move(fits.error()));
  auto rules = std::make_shared<AnswerRules>();
  rules->include_reasoning = chat.include_reasoning;
  rules->thinking_budget = chat.thinking_token_budget;
  answer::AnswerFormat& format = rules->format;
  const std::string& reasoning = config_.reasoning_parser;
  format.reasoning = reasoning == "auto" ? answer::reasoning_format_of(form.source())
                                         : answer::find_reasoning_format(reasoning);
  if (chat.thinking_token_budget && format.reasoning == nullptr) {
    return refuse(RequestErrorCode::kInvalid,
                  "thinking_token_budget is not supported: how this model marks its reasoning is not known",
                  "thinking_token_budget");
  }
  if (!chat.tools.tools.empty()) {
    if (auto fine = offer_tools(chat, form, *rules, grammar); !fine)
      return tl::unexpected(std::move(fine.error()));
  }
  if (format.tools == nullptr && format.reasoning == nullptr) return Result();
  return Result(std::move(rules));
}

/// The special tokens whose text tells where reasoning and calls begin and end.
MarkTokens Api::special_marks(const answer::AnswerFormat& format) const {
  std::vector<std::string_view> marks;
  if (format.tools != nullptr) marks = format.tools->marks();
  if (format.reasoning != nullptr) {
    marks.insert(marks.end(), {format.reasoning->open, format.reasoning->close});
  }
  MarkTokens out;
  for (const std::string_view mark : marks) {
    const auto id = model_.tokenizer.find_token(mark);
    const bool exists = id && static_cast<uint32_t>(*id) < engine_.config().vocab_size;
    if (exists && model_.tokenizer.is_special(*id)) out.emplace(mark, *id);
  }
  return out;
}

Expected<Api::Job> Api::prepare_chat(const HttpRequest& request) const {
  auto body = parse_body(request);
  if (!body) return failed<Job>(body);
  auto parsed = parse_chat(*body, schema_);
  if (!parsed) return failed<Job>(parsed);
  if (auto known = check_model(parsed->options.model); !known) return failed<Job>(known);
  if (auto heeded = check_policy(parsed->options.generation); !heeded) return failed<Job>(heeded);
  if (auto wish = wants_prediction(request); !wish) return failed<Job>(wish);
  AnswerGrammar grammar{.content = std::move(parsed->options.grammar), .calls = {}, .marks = {}};
  auto rules = make_rules(*parsed, grammar);
  if (!rules) return failed<Job>(rules);
  const std::string continued = continued_text(parsed->prompt);
  auto text = render_chat(model_.chat_templates, parsed->prompt);
  if (!text) return failed<Job>(text);
  if (auto waits = check_client(request); !waits) return failed<Job>(waits);
  if (auto known = tokenize_bad_words(parsed->options); !known) return failed<Job>(known);

  Job job;
  job.grammar = std::move(grammar);
  job.style = make_style(AnswerKind::kChat, parsed->options);
  if (*rules != nullptr) fit_to_prompt((*rules)->format, *text, continued);
  job.style.rules = std::move(*rules);
  if (parsed->echo) job.style.echo.push_back(std::move(*parsed->echo));
  if (parsed->return_prompt_text) job.style.prompt_text = *text;
  job.stream = parsed->options.stream;
  // The template has written the special tokens.
  auto ids = encode(*text, parsed->prompt.add_special_tokens, "messages");
  if (!ids) return failed<Job>(ids);
  truncate(parsed->options, *ids);
  job.requests.push_back(make_request(request, parsed->options, std::move(*ids)));
  job.requests.back().name = job.style.id;
  if (job.style.rules != nullptr) {
    for (const auto& [mark, id] : special_marks(job.style.rules->format))
      job.requests.back().shown_special_tokens.push_back(id);
  }
  if (job.style.needs_prompt_ids()) job.style.prompt_ids.push_back(job.requests.back().prompt);
  if (auto fine = check_scores(job.style, job.requests); !fine) return failed<Job>(fine);
  return job;
}

Expected<std::string> Api::tokenize_body(const HttpRequest& request) const {
  auto body = parse_body(request);
  if (!body) return failed<std::string>(body);
  auto parsed = parse_tokenize(*body);
  if (!parsed) return failed<std::string>(parsed);
  if (auto known = check_model(parsed->model); !known) return failed<std::string>(known);
  Expected<std::vector<TokenId>> encoded;
  if (auto* chat = std::get_if<ChatPrompt>(&parsed->prompt)) {
    auto text = render_chat(model_.chat_templates, *chat);
    if (!text) return text;
    encoded = encode(*text, chat->add_special_tokens, "messages");
  } else {
    encoded = encode(std::get<std::string>(parsed->prompt), parsed->add_special_tokens, "prompt");
  }
  if (!encoded) return failed<std::string>(encoded);
  *body = nullptr;
  parsed->prompt = {};
  const std::vector<TokenId>& ids = *encoded;
  std::string out = fmt::format("{{\"count\":{},\"max_model_len\":{},\"tokens\":[", ids.size(),
                                engine_.config().scheduler.max_model_len);
  append_id_list(ids, out);
  out += "],\"token_strs\":";
  if (parsed->return_token_strs) {
    out += '[';
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i > 0) out += ',';
      append_json_string(out, model_.tokenizer.token_text(ids[i]));
    }
    out += "]}";
  } else {
    out += "null}";
  }
  return out;
}

Expected<std::string> Api::detokenize_body(const HttpRequest& request) const {
  auto body = parse_body(request);
  if (!body) return failed<std::string>(body);
  auto parsed = parse_detokenize(*body, schema_);
  if (!parsed) return failed<std::string>(parsed);
  if (auto known = check_model(parsed->model); !known) return failed<std::string>(known);
  const auto text = decode(parsed->tokens, false, "tokens");
  if (!text) return text;
  std::string out = "{\"prompt\":";
  append_json_string(out, *text);
  out += '}';
  return out;
}

}  // namespace quire::serve
