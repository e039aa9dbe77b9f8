#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "chat/chat_templates.h"
#include "tokenize/tokenizer.h"

namespace quire::tokenize {

/// The tokenizer model of files without a tokenizer.
inline constexpr std::string_view kGgufNoVocabulary = "no_vocab";

/// The tokenizer keys of a GGUF file ("tokenizer.*"), as plain data.
struct GgufVocabulary {
  // "token_type"
  static constexpr int32_t kNormal = 1;
  static constexpr int32_t kUnknown = 2;
  static constexpr int32_t kControl = 3;
  static constexpr int32_t kUserDefined = 4;
  static constexpr int32_t kUnused = 5;
  static constexpr int32_t kByte = 6;

  /// "llama": SentencePiece's BPE by scores; "gpt2": byte-level BPE by merges; "no_vocab": the model has no
  /// tokenizer.
  std::string model;
  std::string pre;  // for "gpt2": the pre-tokenizer
  std::vector<std::string> tokens;
  std::vector<float> scores;   // per token; empty: none
  std::vector<int32_t> types;  // per token; empty: all kNormal
  std::vector<std::string> merges;

  /// "bos", "eos", "unknown", "padding", "eot", ...: the values of "tokenizer.ggml.*_token_id".
  std::map<std::string, TokenId> ids;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;

  std::optional<std::string> chat_template;  // the default template, and those with other names
  std::map<std::string, std::string> named_templates;
  /// "tokenizer.huggingface.json": a whole tokenizer.json, which then replaces everything above.
  std::optional<std::string> huggingface_json;
};

/// The equivalent files of a Hugging Face directory; none for "no_vocab".
struct TokenizerFiles {
  std::optional<json::value> tokenizer_json;
  std::optional<std::string>
      tokenizer_model;  // the SentencePiece model, with exactly the vocabulary's scores
  std::optional<json::object> tokenizer_config;
};

/// `where`: the GGUF file. All throw Error with it and the key.
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const GgufVocabulary& vocabulary,
                                               const std::filesystem::path& where);
/// Empty if the file has none.
chat::ChatTemplates find_gguf_chat_templates(const GgufVocabulary& vocabulary,
                                             const std::filesystem::path& where);
TokenizerFiles huggingface_files(const GgufVocabulary& vocabulary, const std::filesystem::path& where);

/// The tokenizer of a Hugging Face directory, for a model with `vocab_size` tokens whose config.json has
/// these ids; "no_vocab" if it has none. Throws Error with file and key for a tokenizer that GGUF cannot
/// express.
GgufVocabulary gguf_vocabulary(const std::filesystem::path& dir, size_t vocab_size,
                               std::optional<TokenId> bos, const std::vector<TokenId>& eos);

}  // namespace quire::tokenize
