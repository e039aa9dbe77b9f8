#include "tokenize/pipeline_tokenizer.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"

namespace quire::tokenize {

class PipelineTokenizer::Stream : public DecodeStream {
 public:
  Stream(const PipelineTokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer),
        skip_special_tokens_(skip_special_tokens),
        run_(tokenizer.parts_.decoder.start()) {}
  std::string push(TokenId id) override {
    std::string_view text;
    if (!tokenizer_.decoder_input(id, skip_special_tokens_, text)) return {};
    run_->push(text);
    return run_->take();
  }
  std::string flush() override {
    run_->finish();
    return run_->take();
  }

 private:
  const PipelineTokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::unique_ptr<TokenDecoder::Run> run_;
};

std::vector<TokenId> PipelineTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = repair_utf8(text);
    text = repaired;
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 4);
  const auto run = parts_.model->start(text.size());
  Growth growth(text.size());
  std::vector<AddedTokens::Part> parts;
  parts_.added.cut(text, false, parts);
  for (const AddedTokens::Part& part : parts) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
    } else {
      encode_plain(text.substr(part.span.begin, part.span.end - part.span.begin), part.span.begin == 0,
                   growth, *run, ids);
    }
  }
  if (parts_.post_processor != nullptr)
    return parts_.post_processor->apply(std::move(ids), add_special_tokens);
  return ids;
}

void PipelineTokenizer::encode_plain(std::string_view text, bool from_start, Growth& growth,
                                     TokenModel::Run& run, std::vector<TokenId>& out) const {
  NormalizedText normalized{std::string(text), from_start, growth};
  if (parts_.normalizer != nullptr) parts_.normalizer->apply(normalized);
  std::vector<AddedTokens::Part> parts;
  parts_.added.cut(normalized.text, true, parts);
  for (const AddedTokens::Part& part : parts) {
    if (part.token != nullptr) {
      out.push_back(part.token->id);
      continue;
    }
    const size_t size = part.span.end - part.span.begin;
    PieceList list{{}, {{0, size}}, normalized.from_start && part.span.begin == 0, growth};
    list.text = size == normalized.text.size() ? std::move(normalized.text)
                                               : normalized.text.substr(part.span.begin, size);
    if (parts_.pre_tokenizer != nullptr) parts_.pre_tokenizer->apply(list);
    for (const Span& piece : list.pieces) run.encode(list.piece(piece), out);
  }
}

bool PipelineTokenizer::decoder_input(TokenId id, bool skip_special_tokens, std::string_view& text) const {
  if (const AddedToken* added = parts_.added.find(id)) {
    text = added->normalized_content;
    return !(skip_special_tokens && added->special);
  }
  const std::string* entry = vocabulary().text(id);
  if (entry != nullptr) text = *entry;
  return entry != nullptr;
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  const auto run = parts_.decoder.start();
  std::string_view text;
  for (const TokenId id : ids) {
    if (decoder_input(id, skip_special_tokens, text)) run->push(text);
  }
  run->finish();
  return run->take();
}

std::unique_ptr<DecodeStream> PipelineTokenizer::decode_stream(bool skip_special_tokens) const {
  return std::make_unique<Stream>(*this, skip_special_tokens);
}

std::string PipelineTokenizer::token_bytes(TokenId id) const {
  std::string_view text;
  if (!decoder_input(id, false, text)) return {};
  return parts_.decoder.inside(text);
}

std::string_view PipelineTokenizer::token_text(TokenId id) const {
  if (const AddedToken* added = parts_.added.find(id)) return added->content;
  const std::string* entry = vocabulary().text(id);
  return entry == nullptr ? std::string_view() : std::string_view(*entry);
}

std::optional<TokenId> PipelineTokenizer::find_token(std::string_view text) const {
  if (const AddedToken* added = parts_.added.find(text)) return added->id;
  const TokenId id = vocabulary().find(text);
  return id < 0 ? std::nullopt : std::optional(id);
}

TokenizerParts parts_from_json(const JsonObject& root) {
  if (root.has("version") && root.string("version") != "1.0") {
    throw root.error("version", fmt::format("'{}' is not supported", root.string("version")));
  }
  auto model = TokenModel::from_json(root, "model");
  return parts_from_json(root, std::move(model), Normalizer::from_json(root, "normalizer"));
}

TokenizerParts parts_from_json(const JsonObject& root, std::unique_ptr<TokenModel> model,
                               std::unique_ptr<Normalizer> normalizer) {
  AddedTokens added(root, "added_tokens", model->vocabulary(), normalizer.get());
  const size_t vocab_size = std::max(model->vocabulary().size(), added.id_end());
  return {.model = std::move(model),
          .normalizer = std::move(normalizer),
          .pre_tokenizer = PreTokenizer::from_json(root, "pre_tokenizer"),
          .post_processor = PostProcessor::from_json(root, "post_processor", vocab_size),
          .added = std::move(added),
          .decoder = TokenDecoder(root, "decoder")};
}

}  // namespace quire::tokenize
