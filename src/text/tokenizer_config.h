#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/json.h"

namespace quire {

/// What a tokenizer_config.json says that a tokenizer.model does not.
struct TokenizerConfig {
  /// As the added_tokens of a tokenizer.json, in the order of their ids.
  json::array added_tokens;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::string bos;  // empty: not said
  std::string eos;
  bool legacy = true;  // false: no space is put behind special tokens

  /// Of the folder; all as above if there is no such file. Throws Error with file and key.
  static TokenizerConfig load(const std::filesystem::path& folder);
};

/// The post_processor of a tokenizer.json that puts a token before or behind a text; nullptr for neither.
json::value surrounding_tokens(std::optional<std::pair<std::string, TokenId>> before,
                               std::optional<std::pair<std::string, TokenId>> behind);

}  // namespace quire
