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

/// One list of tokens on its way to text; see Detokenizer. Keeps a reference to the tokenizer.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  virtual std::string push(TokenId id) = 0;
  virtual std::string flush() = 0;
};

/// Text to token ids and back, exactly as the model's own tokenizer does it. Immutable and thread-safe.
class Tokenizer {
 public:
  /// `path`: a tokenizer.json, a tokenizer.model (SentencePiece's, or tiktoken's ranks as Llama 3 has them),
  /// or a model directory that holds one of them, of which tokenizer.json is preferred. Beside a
  /// tokenizer.model, tokenizer_config.json says which tokens are added and whether BOS and EOS are; of a
  /// directory's tokenizer.json it adds those that are absent there. Throws Error with file and key, or
  /// offset.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& path);
  virtual ~Tokenizer() = default;

  /// Special tokens written in the text are recognised. `add_special_tokens`: also what the post-processor
  /// adds (BOS and so on). Bytes that are no UTF-8 are replaced by U+FFFD first.
  /// Throws Error where a pattern of the file needs more steps on this text than its limits allow, which
  /// those in use never do, and for texts over 1 GiB.
  virtual std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const = 0;

  /// The whole text at once; ids outside the vocabulary give nothing. Broken UTF-8 at the end or in the
  /// middle comes out as U+FFFD.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const = 0;
  /// decode, token by token. By default it joins token_bytes.
  virtual std::unique_ptr<DecodeStream> decode_stream(bool skip_special_tokens) const;

  /// The bytes one token stands for inside a text (not at its start), perhaps not whole UTF-8 characters.
  virtual std::string token_bytes(TokenId id) const = 0;
  /// The entry as the vocabulary file writes it ("Ġthe", "▁the", "<0x0A>").
  virtual std::string_view token_text(TokenId id) const = 0;
  virtual std::optional<TokenId> find_token(std::string_view text) const = 0;
  virtual bool is_special(TokenId id) const = 0;
  /// One more than the highest id.
  virtual size_t vocab_size() const = 0;
};

/// Turns a growing list of tokens into text that never splits a UTF-8 character and whose pieces, joined,
/// equal Tokenizer::decode of the whole list. One per sequence; not thread-safe; keeps a reference to the
/// tokenizer. The work per token does not depend on how many there were. Held back are only bytes of an
/// unfinished character and, where the file decodes bytes one token each (byte fallback), the whole run of
/// such tokens: one broken byte in it makes all of them U+FFFD.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);
  /// The text that has become final with this token, perhaps none.
  std::string push(TokenId id);
  /// What is still held back, at the end of the sequence.
  std::string flush();

 private:
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace quire::tokenize
