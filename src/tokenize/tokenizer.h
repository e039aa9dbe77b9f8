#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quire::tokenize {

/// Decodes one list of tokens; see Detokenizer. Keeps a reference to the tokenizer.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  virtual std::string push(TokenId id) = 0;
  virtual std::string flush() = 0;
};

/// Converts text to token ids and back, with the same results as the model's own tokenizer. Immutable and
/// thread-safe.
class Tokenizer {
 public:
  /// `path`: a tokenizer.json, a tokenizer.model (SentencePiece's, or tiktoken's ranks as for Llama 3), or a
  /// model directory with one of them; tokenizer.json is preferred. For a tokenizer.model, the
  /// tokenizer_config.json beside it says which tokens are added and whether BOS and EOS are; to a
  /// directory's tokenizer.json it adds the tokens that are absent there. Throws Error with file and key, or
  /// offset.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& path);
  virtual ~Tokenizer() = default;

  /// Special tokens in the text are recognized. `add_special_tokens`: with the tokens of the post-processor
  /// (BOS and so on). Invalid UTF-8 is first replaced by U+FFFD. Throws Error if a pattern of the file needs
  /// more steps on this text than its limits allow, which no known tokenizer does, and for texts over 1 GiB.
  virtual std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const = 0;

  /// Decodes a whole list; ids outside the vocabulary give no text. Invalid UTF-8 at the end or in the middle
  /// becomes U+FFFD.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const = 0;
  /// decode, token by token. By default it joins token_bytes.
  virtual std::unique_ptr<DecodeStream> decode_stream(bool skip_special_tokens) const;

  /// The bytes of one token inside a text (not at its start), which may be incomplete UTF-8 characters.
  virtual std::string token_bytes(TokenId id) const = 0;
  /// The entry as in the vocabulary file ("Ġthe", "▁the", "<0x0A>").
  virtual std::string_view token_text(TokenId id) const = 0;
  virtual std::optional<TokenId> find_token(std::string_view text) const = 0;
  virtual bool is_special(TokenId id) const = 0;
  /// The highest id plus one.
  virtual size_t vocab_size() const = 0;
};

/// Turns a growing list of tokens into text that never splits a UTF-8 character and whose pieces, joined,
/// equal Tokenizer::decode of the whole list. One per sequence; not thread-safe; keeps a reference to the
/// tokenizer. The work per token does not depend on the number of tokens before it. It holds back only the
/// bytes of an incomplete character and, if the file has a token per byte (byte fallback), the whole run of
/// such tokens: one invalid byte in the run turns all of them into U+FFFD.
class Detokenizer {
 public:
  /// `shown`: special tokens that are not skipped in any case.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens, std::vector<TokenId> shown = {});
  /// The text that has become final with this token; may be empty.
  std::string push(TokenId id);
  /// The text still held back, at the end of the sequence.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  const bool skips_;  // special tokens, which the stream would show
  const std::vector<TokenId> shown_;
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace quire::tokenize
