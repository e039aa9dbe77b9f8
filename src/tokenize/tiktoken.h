#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "tokenize/tokenizer.h"

namespace quire::tokenize {

/// Whether these can be the bytes of a file of tiktoken's ranks: lines of a token in base64, a space and its
/// rank.
bool looks_like_tiktoken(std::string_view bytes);

/// The tokenizer of a file of tiktoken's ranks, `where` the file. Neither the pattern that splits a text nor
/// the special tokens stand there: how many ranks there are tells Llama 3's (128,000) and Qwen's (151,643),
/// others are refused. Special tokens are tokenizer_config.json's, else those that the family is known to
/// have.
std::unique_ptr<Tokenizer> load_tiktoken(std::string_view bytes, const std::filesystem::path& where);

/// What goes with the ranks. In use are those of Llama 3 and Qwen.
struct TiktokenFamily {
  std::string_view pattern;
  bool nfc;                                 // texts are normalized first
  std::string_view bos;                     // empty: none is added
  std::vector<std::string> special_tokens;  // numbered on from the ranks
};

/// load_tiktoken for a family that is known.
std::unique_ptr<Tokenizer> load_tiktoken(std::string_view bytes, const std::filesystem::path& where,
                                         const TiktokenFamily& family);

}  // namespace quire::tokenize
