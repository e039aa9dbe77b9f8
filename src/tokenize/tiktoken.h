#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "tokenize/tokenizer.h"

namespace quire::tokenize {

/// Whether these may be the bytes of a file with tiktoken's ranks: lines with a token in base64, a space and
/// its rank.
bool looks_like_tiktoken(std::string_view bytes);

/// The tokenizer of a file with tiktoken's ranks; `where`: the file. The file has neither the pattern that
/// splits a text nor the special tokens: the number of ranks identifies Llama 3's (128,000) and Qwen's
/// (151,643) tokenizers, and others are refused. Special tokens come from tokenizer_config.json, else they
/// are the known ones of the family.
std::unique_ptr<Tokenizer> load_tiktoken(std::string_view bytes, const std::filesystem::path& where);

/// The properties that are not in the file. Known families: Llama 3 and Qwen.
struct TiktokenFamily {
  std::string_view pattern;
  bool nfc;                                 // whether texts are normalized first
  std::string_view bos;                     // empty: none is added
  std::vector<std::string> special_tokens;  // numbered after the ranks
};

/// load_tiktoken for a given family.
std::unique_ptr<Tokenizer> load_tiktoken(std::string_view bytes, const std::filesystem::path& where,
                                         const TiktokenFamily& family);

}  // namespace quire::tokenize
