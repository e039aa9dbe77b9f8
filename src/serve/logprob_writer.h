#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/prompt_wants.h"
#include "base/sampling_params.h"
#include "tokenize/tokenizer.h"

// Log probabilities as JSON, in the forms of OpenAI's API and of vLLM. Pure.
namespace quire::serve {

/// A prompt and what the model said of its tokens: rows[i] is of ids[i + 1], and the first has none.
struct ScoredPrompt {
  const std::vector<TokenId>& ids;
  const std::vector<PromptRow>& rows;
  std::string_view text;
  size_t num_best = 0;  // that are shown of each row
};

/// Writes the tokens of one choice as OpenAI's logprobs object. `text_offset` counts characters of the
/// choice's text: those that begin before the token.
class LogprobWriter {
 public:
  struct Style {
    bool chat = false;           // OpenAI's form for a chat, else that for a completion
    bool tokens_as_ids = false;  // "token_id:N" as the text of tokens
    bool skips_specials = true;  // the choice's text has no special tokens
  };
  /// `first_offset`: the characters before the first sampled token.
  LogprobWriter(const tokenize::Tokenizer& tokenizer, Style style, size_t first_offset)
      : tokenizer_(&tokenizer), style_(style), chars_(first_offset) {}

  void append(const std::vector<SampledToken>& tokens, std::string& out);
  /// For a completion: the tokens of the prompt, whose text is the beginning of the choice's, then `tokens`.
  void append(const ScoredPrompt& prompt, const std::vector<SampledToken>& tokens, std::string& out);
  /// Appends vLLM's prompt_logprobs: null for the first token; for each other its logprob and those of the
  /// best, by token id.
  void append_prompt(const ScoredPrompt& prompt, std::string& out) const;

 private:
  /// Counts the characters that begin in bytes, of which each ill-formed sequence is one, as in the text.
  class CharCount {
   public:
    explicit CharCount(size_t before) : ended_(before) {}
    void add(std::string_view bytes);
    size_t begun() const { return ended_ + (rest_.empty() ? 0 : 1); }

   private:
    size_t ended_;
    std::string rest_;  // of a character that is not complete
  };
  /// One entry of a completion's logprobs.
  struct Entry {
    SampledToken token;
    size_t offset = 0;
    bool scored = true;
  };
  void list_prompt(const ScoredPrompt& prompt, std::vector<Entry>& out) const;
  void append_entries(const std::vector<Entry>& entries, std::string& out) const;
  void append_chat(const std::vector<SampledToken>& tokens, std::string& out) const;
  void list_tokens(const std::vector<SampledToken>& tokens, std::vector<Entry>& out);
  std::string bytes_of(TokenId id) const;
  std::string text_of(TokenId id) const;
  void append_entry(const TokenLogprob& entry, std::string& out) const;
  void append_best(const SampledToken& token, std::string& out) const;

  const tokenize::Tokenizer* tokenizer_;
  Style style_;
  CharCount chars_;
};

}  // namespace quire::serve
