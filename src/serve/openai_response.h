#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/engine.h"
#include "serve/chat_answer.h"
#include "serve/logprob_writer.h"
#include "tokenize/tokenizer.h"

// The response bodies of OpenAI's API, with vLLM's additions (stop_reason, token_ids, prompt_logprobs). Pure.
namespace quire::serve {

enum class AnswerKind : uint8_t { kCompletion, kChat };

/// Everything that the form of an answer depends on.
struct AnswerStyle {
  AnswerKind kind = AnswerKind::kCompletion;
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
  uint32_t n = 1;              // choices per prompt
  bool logprobs = false;       // their number is that in the tokens
  bool include_usage = false;  // streamed: a last chunk has the usage
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool tokens_as_ids = false;    // "token_id:N" as the text of tokens
  bool skips_specials = true;    // texts have no special tokens
  int32_t echo_logprobs = -1;    // of each token of the echo so many of the best; -1: no logprobs of it
  int32_t prompt_logprobs = -1;  // the same for vLLM's prompt_logprobs
  /// One per prompt: the text before each of its answers. Empty without echo.
  std::vector<std::string> echo;
  std::optional<std::string> prompt_text;  // of a chat, as vLLM's prompt_text
  /// One per prompt, if needs_prompt_ids().
  std::vector<std::vector<TokenId>> prompt_ids;
  std::vector<TokenId> eos;                  // these ids are not reported as stop_reason
  std::shared_ptr<const AnswerRules> rules;  // of a chat; null: all of an answer is content

  bool needs_prompt_ids() const { return return_token_ids || echo_logprobs >= 0 || prompt_logprobs >= 0; }
};

/// Counts the tokens of all prompts of a request.
class UsageCounter {
 public:
  explicit UsageCounter(size_t num_prompts) : prompts_(num_prompts) {}
  /// `completion_tokens`: those that have been sent so far; no more than in the output.
  void update(size_t prompt, const engine::RequestOutput& output, uint32_t completion_tokens);
  void append(std::string& out) const;  // {"prompt_tokens": ...}

 private:
  struct Counts {
    uint32_t prompt = 0;
    uint32_t cached = 0;
    uint32_t completion = 0;
  };
  std::vector<Counts> prompts_;
  std::optional<engine::Foretold> foretold_;  // of the first prompt
};

/// A complete answer in one body. The references must outlive it.
class WholeAnswer {
 public:
  WholeAnswer(const AnswerStyle& style, const tokenize::Tokenizer& tokenizer, size_t num_prompts);
  void add(size_t prompt, engine::RequestOutput output);
  bool done() const { return open_prompts_ == 0; }
  /// Set if the engine failed for one of the prompts; then there is no body.
  const std::optional<RequestError>& error() const { return error_; }
  std::string body() const;

 private:
  /// A choice of a chat.
  struct Chat {
    ChatChoice choice;
    ChatMessage message;
  };
  void append_choice(size_t index, std::string& out) const;
  void append_prompt_logprobs(size_t prompt, std::string& out) const;

  const AnswerStyle& style_;
  const tokenize::Tokenizer& tokenizer_;
  UsageCounter usage_;
  std::vector<engine::ChoiceOutput> choices_;  // prompts x n
  std::vector<Chat> chats_;                    // the same, of a chat
  std::vector<std::vector<PromptRow>> rows_;   // by prompt
  size_t open_prompts_;
  std::optional<RequestError> error_;
};

/// An answer as server-sent events, written as it is generated. The references must outlive it.
///
/// Each token has its own chunk, however many are written at once, so that a client that counts chunks counts
/// tokens; but what is held back, since it may be a tool call or the end of reasoning, comes with a later
/// one. The text of a chunk may be empty (a part of a character, or the possible beginning of a stop string).
/// A chat's choices begin with one more chunk, which has the role. As in vLLM, with return_token_ids the
/// first chunk of a chat has the prompt's ids; for a completion, the first chunk of each choice has them, and
/// the echo too, with its logprobs. The usage in a chunk counts the tokens of all choices up to this chunk.
class StreamedAnswer {
 public:
  StreamedAnswer(const AnswerStyle& style, const tokenize::Tokenizer& tokenizer, size_t num_prompts);
  /// Appends the output of one step. An error is a separate event and the last one; the choices that it cut
  /// off have no finish_reason.
  void add(size_t prompt, engine::RequestOutput output, std::string& out);
  /// No more output will come: all prompts are done, or one has failed.
  bool done() const { return open_prompts_ == 0 || failed_; }
  /// Appends the usage, if requested, and the end mark.
  void finish(std::string& out) const;

 private:
  struct Choice {
    LogprobWriter logprobs;
    ChatChoice chat;
    bool begun = false;
  };
  void append_role(size_t index, std::string& out);
  void append_chunk(size_t index, const engine::ChoiceOutput& news, std::string& out);
  void end_chunk(std::string& out) const;

  const AnswerStyle& style_;
  std::string head_;  // the text of every chunk up to its choices
  UsageCounter usage_;
  std::vector<Choice> choices_;
  std::vector<std::vector<PromptRow>> rows_;  // by prompt, with echo_logprobs
  size_t open_prompts_;
  bool told_prompt_ = false;
  bool failed_ = false;
};

/// OpenAI's error body. Empty `param` and `code` are written as null.
std::string error_body(std::string_view message, std::string_view type, std::string_view param,
                       std::string_view code);

/// The HTTP form of a RequestError: its status and body.
struct ErrorAnswer {
  unsigned status = 500;
  std::string body;
};
ErrorAnswer error_answer(const RequestError& error);

}  // namespace quire::serve
