#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace quire::formats {

/// The special tokens of a generated model's tokenizer, from `first_special` up to the end of the vocabulary.
struct FillerTokens {
  uint32_t vocab_size = 0;
  uint32_t first_special = 0;         // >= 256
  std::vector<std::string> specials;  // by id from first_special on, vocab_size - first_special of them
  std::string prepended;              // the special token before every text, empty if none
};

/// A byte-level BPE tokenizer.json without merges: the 256 bytes, made-up words that encoding never produces,
/// and the special tokens.
json::object filler_tokenizer_json(const FillerTokens& tokens);

}  // namespace quire::formats
