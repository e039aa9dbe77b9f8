#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/json.h"

namespace quire::tokenize {

/// Settings from the files beside a tokenizer: tokenizer_config.json, and if that has no
/// added_tokens_decoder, the older added_tokens.json with special_tokens_map.json.
struct TokenizerConfig {
  /// In the form of added_tokens in a tokenizer.json, in the order of their ids.
  json::array added_tokens;
  std::filesystem::path added_tokens_file;  // the file that has them
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::string bos;  // empty: not given
  std::string eos;
  bool legacy = true;  // false: no space is added after special tokens

  /// Reads the files of the folder; the defaults above apply if a file is absent. Throws Error with file and
  /// key.
  static TokenizerConfig load(const std::filesystem::path& folder);
  /// Reads only added_tokens and their file; ignores the other keys.
  static TokenizerConfig load_added_tokens(const std::filesystem::path& folder);
  /// added_tokens in the form for a tokenizer.model: found in the text before any normalization.
  json::array added_to_text() const;
};

/// The post_processor of a tokenizer.json that adds a token before or after a text; nullptr for neither.
json::value surrounding_tokens(std::optional<std::pair<std::string, TokenId>> before,
                               std::optional<std::pair<std::string, TokenId>> behind);

}  // namespace quire::tokenize
