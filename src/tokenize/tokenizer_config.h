#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/json.h"

namespace quire::tokenize {

/// What the files beside a tokenizer say that it does not: tokenizer_config.json, and where that has no
/// added_tokens_decoder the older added_tokens.json with special_tokens_map.json.
struct TokenizerConfig {
  /// As the added_tokens of a tokenizer.json, in the order of their ids.
  json::array added_tokens;
  std::filesystem::path added_tokens_file;  // which of the files has them
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::string bos;  // empty: not said
  std::string eos;
  bool legacy = true;  // false: no space is put behind special tokens

  /// Of the folder; all as above where a file is absent. Throws Error with file and key.
  static TokenizerConfig load(const std::filesystem::path& folder);
  /// No more than added_tokens and their file; the other keys are not looked at.
  static TokenizerConfig load_added_tokens(const std::filesystem::path& folder);
  /// added_tokens as they are beside a tokenizer.model: cut out of the text before any normalization.
  json::array added_to_text() const;
};

/// The post_processor of a tokenizer.json that puts a token before or behind a text; nullptr for neither.
json::value surrounding_tokens(std::optional<std::pair<std::string, TokenId>> before,
                               std::optional<std::pair<std::string, TokenId>> behind);

}  // namespace quire::tokenize
