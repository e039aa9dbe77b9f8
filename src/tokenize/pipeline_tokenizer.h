#pragma once

#include <memory>

#include "base/json.h"
#include "tokenize/added_tokens.h"
#include "tokenize/normalizer.h"
#include "tokenize/post_processor.h"
#include "tokenize/pre_tokenizer.h"
#include "tokenize/token_decoder.h"
#include "tokenize/token_model.h"
#include "tokenize/tokenizer.h"

namespace quire::tokenize {

/// The parts of a tokenizer: text -> split at added tokens -> normalizer -> split at more added tokens ->
/// pre-tokenizer -> model -> post-processor -> ids, and back through the decoder. Every part except the model
/// is optional.
struct TokenizerParts {
  std::unique_ptr<TokenModel> model;
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<PostProcessor> post_processor;
  AddedTokens added;
  TokenDecoder decoder;
};

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {}

  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const override;
  std::unique_ptr<DecodeStream> decode_stream(bool skip_special_tokens) const override;
  std::string token_bytes(TokenId id) const override;
  std::string_view token_text(TokenId id) const override;
  std::optional<TokenId> find_token(std::string_view text) const override;
  bool is_special(TokenId id) const override {
    const AddedToken* added = parts_.added.find(id);
    return added != nullptr && added->special;
  }
  size_t vocab_size() const override { return std::max(vocabulary().size(), parts_.added.id_end()); }

 private:
  class Stream;

  const Vocabulary& vocabulary() const { return parts_.model->vocabulary(); }
  void encode_plain(std::string_view text, bool from_start, Growth& growth, TokenModel::Run& run,
                    std::vector<TokenId>& out) const;
  /// The input of the decoder for this id; false if there is none.
  bool decoder_input(TokenId id, bool skip_special_tokens, std::string_view& text) const;

  TokenizerParts parts_;
};

/// The parts that a tokenizer.json (its root object) describes.
TokenizerParts parts_from_json(const JsonObject& root);
/// The same with `model` and `normalizer` (perhaps nullptr) instead of those of the object.
TokenizerParts parts_from_json(const JsonObject& root, std::unique_ptr<TokenModel> model,
                               std::unique_ptr<Normalizer> normalizer);

}  // namespace quire::tokenize
