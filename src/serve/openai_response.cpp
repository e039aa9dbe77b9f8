#include "serve/openai_response.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "serve/json_text.h"

namespace quire::serve {
namespace {

std::string_view reason_name(control::FinishReason reason) {
  switch (reason) {
    case control::FinishReason::kStop:
      return "stop";
    case control::FinishReason::kLength:
      return "length";
    case control::FinishReason::kAbort:
      return "abort";
    case control::FinishReason::kError:
      break;
  }
  return "error";
}

/// Appends `,"finish_reason":...,"stop_reason":...`.
void append_reasons(const AnswerStyle& style, const engine::ChoiceOutput& choice, bool with_calls,
                    std::string& out) {
  out += ",\"finish_reason\":";
  if (choice.finish) {
    const bool calls = with_calls && *choice.finish == control::FinishReason::kStop;
    append_json_string(out, calls ? "tool_calls" : reason_name(*choice.finish));
  } else {
    out += "null";
  }
  out += ",\"stop_reason\":";
  if (choice.stop_string) {
    append_json_string(out, *choice.stop_string);
  } else if (choice.stop_token &&
             std::find(style.eos.begin(), style.eos.end(), *choice.stop_token) == style.eos.end()) {
    out += std::to_string(*choice.stop_token);
  } else {
    out += "null";
  }
}

template <class Ids, class Id>
void append_ids(const Ids& ids, Id&& id, std::string& out) {
  out += '[';
  bool first = true;
  for (const auto& item : ids) {
    if (!std::exchange(first, false)) out += ',';
    out += std::to_string(id(item));
  }
  out += ']';
}
void append_ids(const std::vector<SampledToken>& tokens, std::string& out) {
  append_ids(
      tokens, [](const SampledToken& token) { return token.token; }, out);
}
void append_ids(const std::vector<TokenId>& tokens, std::string& out) {
  append_ids(
      tokens, [](TokenId id) { return id; }, out);
}

/// Appends `,"prompt_token_ids":[...]`.
void append_prompt_ids(const AnswerStyle& style, size_t prompt, std::string& out) {
  out += ",\"prompt_token_ids\":";
  append_ids(style.prompt_ids[prompt], out);
}

/// `{"id":...,"object":...,"created":...,"model":...,"choices":[`
std::string answer_head(const AnswerStyle& style, std::string_view object) {
  std::string out = "{\"id\":";
  append_json_string(out, style.id);
  fmt::format_to(std::back_inserter(out), ",\"object\":\"{}\",\"created\":{},\"model\":", object,
                 style.created);
  append_json_string(out, style.model);
  out += ",\"choices\":[";
  return out;
}

/// What an answer to a chat says of its prompt.
void append_chat_prompt(const AnswerStyle& style, std::string& out) {
  if (style.return_token_ids) append_prompt_ids(style, 0, out);
  if (!style.prompt_text) return;
  out += ",\"prompt_text\":";
  append_json_string(out, *style.prompt_text);
}

std::string_view echo_of(const AnswerStyle& style, size_t choice) {
  return style.echo.empty() ? std::string_view() : style.echo[choice / style.n];
}

LogprobWriter::Style logprob_style(const AnswerStyle& style) {
  return {.chat = style.kind == AnswerKind::kChat,
          .tokens_as_ids = style.tokens_as_ids,
          .skips_specials = style.skips_specials};
}

/// A prompt as its echo shows it.
ScoredPrompt scored_prompt(const AnswerStyle& style, size_t prompt,
                           const std::vector<std::vector<PromptRow>>& rows) {
  return {style.prompt_ids[prompt], rows[prompt],
          style.echo.empty() ? std::string_view() : style.echo[prompt],
          static_cast<size_t>(std::max(style.echo_logprobs, 0))};
}

/// Appends what was foretold of the first token and the end, and when the first token came.
void append_times(const engine::Foretold& times, std::string& out) {
  const auto milliseconds = [](Nanos time) { return static_cast<double>(time) * 1e-6; };
  fmt::format_to(std::back_inserter(out),
                 ",\"predicted_ttft_ms\":{:.1f},\"predicted_ms\":{:.1f},\"ttft_ms\":",
                 milliseconds(times.first_token), milliseconds(times.end));
  if (times.real_first_token < 0) {
    out += "null";
  } else {
    fmt::format_to(std::back_inserter(out), "{:.1f}", milliseconds(times.real_first_token));
  }
}

}  // namespace

// ---- Usage ----

void UsageCounter::update(size_t prompt, const engine::RequestOutput& output, uint32_t completion_tokens) {
  prompts_[prompt] = {output.prompt_tokens, output.cached_tokens, completion_tokens};
  if (prompt == 0 && output.foretold) foretold_ = output.foretold;
}

void UsageCounter::append(std::string& out) const {
  uint64_t prompt = 0;
  uint64_t cached = 0;
  uint64_t completion = 0;
  for (const Counts& counts : prompts_) {
    prompt += counts.prompt;
    cached += counts.cached;
    completion += counts.completion;
  }
  fmt::format_to(std::back_inserter(out),
                 "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},"
                 "\"prompt_tokens_details\":{{\"cached_tokens\":{}}}",
                 prompt, completion, prompt + completion, cached);
  if (foretold_) append_times(*foretold_, out);
  out += '}';
}

// ---- An answer in one piece ----

WholeAnswer::WholeAnswer(const AnswerStyle& style, const tokenize::Tokenizer& tokenizer, size_t num_prompts)
    : style_(style),
      tokenizer_(tokenizer),
      usage_(num_prompts),
      choices_(num_prompts * style.n),
      rows_(num_prompts),
      open_prompts_(num_prompts) {
  if (style.kind != AnswerKind::kChat) return;
  chats_.reserve(choices_.size());
  for (size_t i = 0; i < choices_.size(); ++i) chats_.push_back({ChatChoice(style.rules.get()), {}});
}

void WholeAnswer::add(size_t prompt, engine::RequestOutput output) {
  usage_.update(prompt, output, output.completion_tokens);
  std::ranges::move(output.prompt.rows, std::back_inserter(rows_[prompt]));
  for (engine::ChoiceOutput& news : output.choices) {
    const size_t index = prompt * style_.n + news.index;
    engine::ChoiceOutput& choice = choices_[index];
    if (style_.kind == AnswerKind::kChat) {
      chats_[index].message.add(chats_[index].choice.take(news));
    } else {
      choice.text += news.text;
    }
    if (style_.logprobs || style_.return_token_ids) {
      std::move(news.tokens.begin(), news.tokens.end(), std::back_inserter(choice.tokens));
    }
    if (news.finish) {
      choice.finish = news.finish;
      choice.stop_string = std::move(news.stop_string);
      choice.stop_token = news.stop_token;
    }
  }
  if (output.error && !error_) error_ = std::move(output.error);
  if (output.done) --open_prompts_;
}

void WholeAnswer::append_choice(size_t index, std::string& out) const {
  const engine::ChoiceOutput& choice = choices_[index];
  const std::string_view echo = echo_of(style_, index);
  fmt::format_to(std::back_inserter(out), "{{\"index\":{},", index);
  if (style_.kind == AnswerKind::kChat) {
    out += "\"message\":";
    chats_[index].message.append(chats_[index].choice.id_length(), echo, out);
  } else {
    out += "\"text\":";
    append_json_string(out, echo.empty() ? choice.text : std::string(echo) + choice.text);
  }
  out += ",\"logprobs\":";
  LogprobWriter logprobs(tokenizer_, logprob_style(style_), count_utf8(echo));
  if (style_.echo_logprobs >= 0) {
    logprobs.append(scored_prompt(style_, index / style_.n, rows_), choice.tokens, out);
  } else if (style_.logprobs) {
    logprobs.append(choice.tokens, out);
  } else {
    out += "null";
  }
  append_reasons(style_, choice, !chats_.empty() && chats_[index].choice.ends_with_calls(), out);
  if (style_.return_token_ids) {
    out += ",\"token_ids\":";
    append_ids(choice.tokens, out);
    if (style_.kind == AnswerKind::kCompletion) append_prompt_ids(style_, index / style_.n, out);
  }
  if (style_.kind == AnswerKind::kCompletion) append_prompt_logprobs(index / style_.n, out);
  out += '}';
}

void WholeAnswer::append_prompt_logprobs(size_t prompt, std::string& out) const {
  if (style_.prompt_logprobs < 0) return;
  ScoredPrompt scored = scored_prompt(style_, prompt, rows_);
  scored.num_best = static_cast<size_t>(style_.prompt_logprobs);
  out += ",\"prompt_logprobs\":";
  LogprobWriter(tokenizer_, logprob_style(style_), 0).append_prompt(scored, out);
}

std::string WholeAnswer::body() const {
  std::string out =
      answer_head(style_, style_.kind == AnswerKind::kChat ? "chat.completion" : "text_completion");
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (i > 0) out += ',';
    append_choice(i, out);
  }
  out += "],\"usage\":";
  usage_.append(out);
  if (style_.kind == AnswerKind::kChat) {
    append_chat_prompt(style_, out);
    append_prompt_logprobs(0, out);
  }
  out += '}';
  return out;
}

// ---- An answer as events ----

StreamedAnswer::StreamedAnswer(const AnswerStyle& style, const tokenize::Tokenizer& tokenizer,
                               size_t num_prompts)
    : style_(style),
      head_("data: " + answer_head(style, style.kind == AnswerKind::kChat ? "chat.completion.chunk"
                                                                          : "text_completion")),
      usage_(num_prompts),
      rows_(num_prompts),
      open_prompts_(num_prompts) {
  choices_.reserve(num_prompts * style.n);
  for (size_t i = 0; i < num_prompts * style.n; ++i) {
    choices_.push_back({LogprobWriter(tokenizer, logprob_style(style), count_utf8(echo_of(style, i))),
                        ChatChoice(style.rules.get()), false});
  }
}

void StreamedAnswer::add(size_t prompt, engine::RequestOutput output, std::string& out) {
  if (failed_) return;
  size_t untold = 0;
  for (const engine::ChoiceOutput& news : output.choices) untold += news.tokens.size();
  auto told = output.completion_tokens - std::min(output.completion_tokens, static_cast<uint32_t>(untold));
  usage_.update(prompt, output, told);
  std::ranges::move(output.prompt.rows, std::back_inserter(rows_[prompt]));
  for (engine::ChoiceOutput& news : output.choices) {
    const bool cut =
        news.finish == control::FinishReason::kAbort || news.finish == control::FinishReason::kError;
    if (cut && output.error) news.finish.reset();
    const size_t index = prompt * style_.n + news.index;
    if (style_.kind == AnswerKind::kChat) append_role(index, out);
    if (news.text.empty() && news.tokens.empty() && !news.finish) continue;
    told += static_cast<uint32_t>(news.tokens.size());
    usage_.update(prompt, output, told);
    append_chunk(index, news, out);
  }
  if (output.done) {
    --open_prompts_;
    rows_[prompt] = {};
  }
  if (output.error) {
    failed_ = true;
    out += "data: ";
    out += error_answer(*output.error).body;
    out += "\n\n";
  }
}

void StreamedAnswer::append_role(size_t index, std::string& out) {
  if (std::exchange(choices_[index].begun, true)) return;
  out += head_;
  fmt::format_to(std::back_inserter(out),
                 "{{\"index\":{},\"delta\":{{\"role\":\"assistant\",\"content\":", index);
  append_json_string(out, echo_of(style_, index));
  out += "},\"logprobs\":null,\"finish_reason\":null}]";
  if (!std::exchange(told_prompt_, true)) append_chat_prompt(style_, out);
  end_chunk(out);
}

void StreamedAnswer::append_chunk(size_t index, const engine::ChoiceOutput& news, std::string& out) {
  const bool chat = style_.kind == AnswerKind::kChat;
  answer::Piece piece;
  if (chat) {
    piece = choices_[index].chat.take(news);
    const bool held = piece.empty() && !news.text.empty() && !news.finish;
    if (held && !style_.logprobs && !style_.return_token_ids) return;
  }
  const bool first = !std::exchange(choices_[index].begun, true);  // a chat's is that of its role
  out += head_;
  fmt::format_to(std::back_inserter(out), "{{\"index\":{},", index);
  if (chat && piece.empty() && news.finish) {
    out += "\"delta\":{}";
  } else if (chat) {
    out += "\"delta\":";
    append_delta(piece, choices_[index].chat.id_length(), out);
  } else {
    const std::string_view echo = first ? echo_of(style_, index) : std::string_view();
    out += "\"text\":";
    append_json_string(out, echo.empty() ? news.text : std::string(echo) + news.text);
  }
  out += ",\"logprobs\":";
  if (style_.echo_logprobs >= 0 && first) {
    choices_[index].logprobs.append(scored_prompt(style_, index / style_.n, rows_), news.tokens, out);
  } else if (style_.logprobs && !news.tokens.empty()) {
    choices_[index].logprobs.append(news.tokens, out);
  } else {
    out += "null";
  }
  append_reasons(style_, news, choices_[index].chat.ends_with_calls(), out);
  if (style_.return_token_ids) {
    out += ",\"token_ids\":";
    append_ids(news.tokens, out);
    if (first && !chat) append_prompt_ids(style_, index / style_.n, out);
  }
  out += "}]";
  end_chunk(out);
}

void StreamedAnswer::end_chunk(std::string& out) const {
  if (style_.include_usage) {
    out += ",\"usage\":";
    if (style_.continuous_usage) {
      usage_.append(out);
    } else {
      out += "null";
    }
  }
  out += "}\n\n";
}

void StreamedAnswer::finish(std::string& out) const {
  if (style_.include_usage && !failed_) {
    out += head_;
    out += "],\"usage\":";
    usage_.append(out);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

// ---- Errors ----

std::string error_body(std::string_view message, std::string_view type, std::string_view param,
                       std::string_view code) {
  const auto or_null = [](std::string& out, std::string_view text) {
    if (text.empty()) {
      out += "null";
    } else {
      append_json_string(out, text);
    }
  };
  std::string out = "{\"error\":{\"message\":";
  append_json_string(out, message);
  out += ",\"type\":";
  append_json_string(out, type);
  out += ",\"param\":";
  or_null(out, param);
  out += ",\"code\":";
  or_null(out, code);
  out += "}}";
  return out;
}

ErrorAnswer error_answer(const RequestError& error) {
  const auto answer = [&](unsigned status, std::string_view type, std::string_view code) {
    return ErrorAnswer{status, error_body(error.message, type, error.param, code)};
  };
  switch (error.code) {
    case RequestErrorCode::kInvalid:
      return answer(400, "invalid_request_error", "");
    case RequestErrorCode::kTooLong:
      return answer(400, "invalid_request_error", "context_length_exceeded");
    case RequestErrorCode::kNotFound:
      return answer(404, "invalid_request_error", "model_not_found");
    case RequestErrorCode::kQueueFull:
      return answer(429, "rate_limit_error", "rate_limit_exceeded");
    case RequestErrorCode::kShuttingDown:
      return answer(503, "server_error", "shutting_down");
    case RequestErrorCode::kInternal:
      break;
  }
  return answer(500, "server_error", "internal_error");
}

}  // namespace quire::serve
