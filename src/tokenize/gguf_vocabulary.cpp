#include "tokenize/gguf_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "tokenize/gguf_pre_tokenizer.h"
#include "tokenize/pipeline_tokenizer.h"
#include "tokenize/sentencepiece.h"
#include "tokenize/sentencepiece_file.h"
#include "tokenize/tokenizer_config.h"

namespace quire::tokenize {
namespace {

using Special = std::optional<std::pair<std::string, TokenId>>;

Error key_error(const std::filesystem::path& where, std::string_view key, std::string_view what) {
  return file_error(where, fmt::format("key 'tokenizer.ggml.{}': {}", key, what));
}

int32_t type_of(const GgufVocabulary& v, size_t id) {
  return v.types.empty() ? GgufVocabulary::kNormal : v.types[id];
}

/// Checks what the other functions assume: as many types and scores as tokens, ids of existing tokens, texts
/// in UTF-8.
void check(const GgufVocabulary& v, const std::filesystem::path& where) {
  if (v.tokens.empty()) throw key_error(where, "tokens", "there are none");
  if (!v.types.empty() && v.types.size() != v.tokens.size()) {
    throw key_error(where, "token_type",
                    fmt::format("{} types for {} tokens", v.types.size(), v.tokens.size()));
  }
  if (!v.scores.empty() && v.scores.size() != v.tokens.size()) {
    throw key_error(where, "scores",
                    fmt::format("{} scores for {} tokens", v.scores.size(), v.tokens.size()));
  }
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    if (!is_valid_utf8(v.tokens[id]))
      throw key_error(where, "tokens", fmt::format("number {} is not UTF-8", id));
  }
  for (const auto& [name, id] : v.ids) {
    if (id < 0 || static_cast<size_t>(id) >= v.tokens.size()) {
      throw key_error(where, name + "_token_id",
                      fmt::format("{} is not one of the {} tokens", id, v.tokens.size()));
    }
  }
}

std::optional<TokenId> id_of(const GgufVocabulary& v, const std::string& name) {
  const auto found = v.ids.find(name);
  return found == v.ids.end() ? std::nullopt : std::optional(found->second);
}

Special special(const GgufVocabulary& v, const std::string& name) {
  const auto id = id_of(v, name);
  if (!id) return std::nullopt;
  return std::pair(v.tokens[static_cast<size_t>(*id)], *id);
}

bool adds_bos(const GgufVocabulary& v, bool otherwise) { return v.add_bos.value_or(otherwise); }

/// Duplicate or empty texts cannot be found: the id stays and gets a unique text.
std::vector<std::string> unique_texts(const GgufVocabulary& v) {
  std::unordered_set<std::string_view> seen;
  std::vector<std::string> out;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const bool usable = !v.tokens[id].empty() && seen.insert(v.tokens[id]).second;
    out.push_back(usable ? v.tokens[id] : fmt::format("[UNUSED_{}]", id));
  }
  return out;
}

json::object added_token(size_t id, const std::string& text, bool is_special) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", is_special}};
}

bool is_added(int32_t type) {
  return type == GgufVocabulary::kControl || type == GgufVocabulary::kUserDefined ||
         type == GgufVocabulary::kUnknown;
}

/// The post_processor that adds a token before or after a text, with all fields that the `tokenizers` library
/// requires.
json::value template_processing(const Special& before, const Special& behind) {
  if (!before && !behind) return nullptr;
  json::object tokens;
  const auto add = [&](json::array& parts, const Special& token, int type) {
    if (!token) return;
    parts.push_back(json::object{{"SpecialToken", {{"id", token->first}, {"type_id", type}}}});
    tokens[token->first] = {
        {"id", token->first}, {"ids", json::array{token->second}}, {"tokens", json::array{token->first}}};
  };
  const auto text = [&](json::array& parts, const char* id, int type) {
    add(parts, before, type);
    parts.push_back(json::object{{"Sequence", {{"id", id}, {"type_id", type}}}});
    add(parts, behind, type);
  };
  json::array single;
  json::array pair;
  text(single, "A", 0);
  text(pair, "A", 0);
  text(pair, "B", 1);
  return json::object{{"type", "TemplateProcessing"},
                      {"single", std::move(single)},
                      {"pair", std::move(pair)},
                      {"special_tokens", std::move(tokens)}};
}

/// "a b" as the two entries; the first may begin with a space.
std::pair<std::string_view, std::string_view> halves(std::string_view merge,
                                                     const std::filesystem::path& where) {
  const size_t space = merge.find(' ', 1);
  if (space == merge.npos) throw key_error(where, "merges", "an entry is not two tokens and a space");
  return {merge.substr(0, space), merge.substr(space + 1)};
}

json::object byte_level_json(const GgufVocabulary& v, const std::filesystem::path& where) {
  const GgufPreTokenizer* pre = find_gguf_pre_tokenizer(v.pre);
  if (pre == nullptr) {
    throw key_error(where, "pre",
                    fmt::format("'{}' is not supported", std::string_view(v.pre).substr(0, 64)));
  }
  if (v.pre.empty()) {
    log_warning(
        fmt::format("{}: key 'tokenizer.ggml.pre' is missing: the text may be split differently than in the "
                    "model's training",
                    where.string()));
  }
  const std::vector<std::string> texts = unique_texts(v);
  json::object vocab;
  vocab.reserve(texts.size());
  json::array added;
  for (size_t id = 0; id < texts.size(); ++id) {
    vocab.emplace(texts[id], id);
    if (is_added(type_of(v, id))) {
      added.push_back(added_token(id, texts[id], type_of(v, id) != GgufVocabulary::kUserDefined));
    }
  }
  json::array merges;
  for (const std::string& merge : v.merges) {
    const auto [left, right] = halves(merge, where);
    merges.push_back(json::array{left, right});
  }
  const Special bos = adds_bos(v, pre->add_bos) ? special(v, "bos") : std::nullopt;
  const Special eos = v.add_eos.value_or(false) ? special(v, "eos") : std::nullopt;
  json::object out = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", pre_tokenizer_json(*pre)},
      {"post_processor", template_processing(bos, eos)},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", pre->ignore_merges},
        {"vocab", std::move(vocab)},
        {"merges", std::move(merges)}}}};
  if (pre->nfc) out["normalizer"] = {{"type", "NFC"}};
  return out;
}

/// The unknown token: some tools have marked it as control, or have marked other tokens as unknown.
size_t unknown_of(const GgufVocabulary& v) {
  if (const auto id = id_of(v, "unknown")) return static_cast<size_t>(*id);
  const auto first = std::find(v.types.begin(), v.types.end(), GgufVocabulary::kUnknown);
  return first == v.types.end() ? 0 : static_cast<size_t>(first - v.types.begin());
}

SentencePieceFile sentencepiece_of(const GgufVocabulary& v, const std::filesystem::path& where) {
  using Type = SentencePieceFile::Type;
  if (v.scores.empty()) throw key_error(where, "scores", "missing");
  const std::vector<std::string> texts = unique_texts(v);
  SentencePieceFile file;
  file.model = SentencePieceFile::Model::kBpe;
  size_t bytes = 0;
  const size_t unknown = unknown_of(v);
  for (size_t id = 0; id < texts.size(); ++id) {
    const int32_t type = type_of(v, id);
    if (type < GgufVocabulary::kNormal || type > GgufVocabulary::kByte) {
      throw key_error(where, "token_type", fmt::format("{} is not a type (token {})", type, id));
    }
    if (!std::isfinite(v.scores[id])) {
      throw key_error(where, "scores", fmt::format("that of token {} is not a number", id));
    }
    file.pieces.push_back({texts[id], v.scores[id], static_cast<Type>(type)});
    Type& own = file.pieces.back().type;
    if (texts[id] != v.tokens[id]) own = Type::kUnused;
    if (own == Type::kUnknown) own = Type::kControl;
    if (id == unknown) own = Type::kUnknown;
    bytes += type == GgufVocabulary::kByte ? 1 : 0;
  }
  constexpr size_t kAllBytes = 256;
  if (bytes != 0 && bytes != kAllBytes) {
    throw key_error(where, "token_type", fmt::format("{} byte tokens; there must be none or all", bytes));
  }
  file.byte_fallback = bytes != 0;
  file.bos = id_of(v, "bos").value_or(-1);
  file.eos = id_of(v, "eos").value_or(-1);
  file.dummy_prefix = v.add_space_prefix.value_or(true);
  file.remove_extra_whitespaces = false;
  return file;
}

TokenizerConfig sentencepiece_config(const GgufVocabulary& v) {
  TokenizerConfig config;
  config.add_bos = adds_bos(v, true) && id_of(v, "bos");
  config.add_eos = v.add_eos.value_or(false) && id_of(v, "eos");
  if (const Special bos = special(v, "bos")) config.bos = bos->first;
  if (const Special eos = special(v, "eos")) config.eos = eos->first;
  return config;
}

json::object tokenizer_config(const GgufVocabulary& v) {
  json::object out = {{"clean_up_tokenization_spaces", false}};
  for (const auto& [key, name] : {std::pair("bos_token", "bos"), std::pair("eos_token", "eos"),
                                  std::pair("unk_token", "unknown"), std::pair("pad_token", "padding")}) {
    if (const Special token = special(v, name)) out[key] = token->first;
  }
  if (!v.named_templates.empty()) {
    json::array templates;
    if (v.chat_template) templates.push_back({{"name", "default"}, {"template", *v.chat_template}});
    for (const auto& [name, text] : v.named_templates) {
      if (name != "default" || !v.chat_template) templates.push_back({{"name", name}, {"template", text}});
    }
    out["chat_template"] = std::move(templates);
  } else if (v.chat_template) {
    out["chat_template"] = *v.chat_template;
  }
  return out;
}

json::value huggingface_json(const GgufVocabulary& v, const std::filesystem::path& where) {
  return parse_json(*v.huggingface_json, where.string() + ": key 'tokenizer.huggingface.json'");
}

Error unknown_model(const GgufVocabulary& v, const std::filesystem::path& where) {
  return key_error(
      where, "model",
      fmt::format("'{}' is not supported (llama, gpt2)", std::string_view(v.model).substr(0, 64)));
}

}  // namespace

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const GgufVocabulary& vocabulary,
                                               const std::filesystem::path& where) {
  if (vocabulary.huggingface_json) {
    const json::value root = huggingface_json(vocabulary, where);
    return std::make_unique<PipelineTokenizer>(parts_from_json(JsonObject(root, where)));
  }
  check(vocabulary, where);
  if (vocabulary.model == "llama") {
    return sentencepiece_tokenizer(sentencepiece_of(vocabulary, where), sentencepiece_config(vocabulary),
                                   where);
  }
  if (vocabulary.model != "gpt2") throw unknown_model(vocabulary, where);
  const json::value root = byte_level_json(vocabulary, where);
  return std::make_unique<PipelineTokenizer>(parts_from_json(JsonObject(root, where)));
}

chat::ChatTemplates find_gguf_chat_templates(const GgufVocabulary& vocabulary,
                                             const std::filesystem::path& where) {
  if (vocabulary.model == kGgufNoVocabulary) return {};
  check(vocabulary, where);
  const std::string key = "tokenizer.chat_template";
  std::map<std::string, chat::TemplateSource> sources;
  for (const auto& [name, text] : vocabulary.named_templates) {
    sources[name] = {.text = text, .file = where, .key = fmt::format("{}.{}", key, name)};
  }
  if (vocabulary.chat_template) {
    sources[std::string(chat::kDefaultTemplate)] = {
        .text = *vocabulary.chat_template, .file = where, .key = key};
  }
  return {sources, chat::special_tokens(tokenizer_config(vocabulary))};
}

TokenizerFiles huggingface_files(const GgufVocabulary& vocabulary, const std::filesystem::path& where) {
  TokenizerFiles out;
  if (vocabulary.model == kGgufNoVocabulary) return out;
  check(vocabulary, where);
  json::object& config = out.tokenizer_config.emplace(tokenizer_config(vocabulary));
  if (vocabulary.huggingface_json) {
    out.tokenizer_json = huggingface_json(vocabulary, where);
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    return out;
  }
  if (vocabulary.model == "gpt2") {
    out.tokenizer_json = byte_level_json(vocabulary, where);
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    return out;
  }
  if (vocabulary.model != "llama") throw unknown_model(vocabulary, where);
  const SentencePieceFile file = sentencepiece_of(vocabulary, where);
  out.tokenizer_model = write_sentencepiece(file);
  const TokenizerConfig spoken = sentencepiece_config(vocabulary);
  config["tokenizer_class"] = "LlamaTokenizer";
  config["add_bos_token"] = *spoken.add_bos;
  config["add_eos_token"] = *spoken.add_eos;
  config["legacy"] = true;
  json::object added;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    using Type = SentencePieceFile::Type;
    const Type type = file.pieces[id].type;
    if (type != Type::kControl && type != Type::kUnknown) continue;
    json::object token = added_token(id, file.pieces[id].text, true);
    token.erase("id");
    added.emplace(std::to_string(id), std::move(token));
  }
  config["added_tokens_decoder"] = std::move(added);
  return out;
}

}  // namespace quire::tokenize
