#pragma once

#include <span>
#include <string_view>

#include "base/json.h"

namespace quire::tokenize {

/// A "tokenizer.ggml.pre" of GGUF: the pre-tokenization of a byte-level BPE, as in the tokenizer.json of the
/// models with that name.
struct GgufPreTokenizer {
  struct Step {
    enum class Kind : uint8_t {
      kSplit,           // at each match of `regex`, Isolated
      kDigits,          // each digit separately
      kDigitRuns,       // at runs of digits
      kPunctuation,     // at runs of punctuation
      kByteLevel,       // bytes as characters
      kByteLevelSplit,  // GPT-2's pattern first
    };
    Kind kind;
    std::string_view regex = {};
  };

  std::span<const std::string_view> names;  // the first one is used for writing
  std::span<const Step> steps;
  bool ignore_merges = false;
  bool add_bos = false;  // if the file does not say
  bool nfc = false;      // the text is normalized to NFC
};

/// Null if quire does not know the name.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);
/// The one of a tokenizer.json (its root object); null if GGUF has no name for it.
const GgufPreTokenizer* match_gguf_pre_tokenizer(const JsonObject& root);
/// The "pre_tokenizer" of a tokenizer.json.
json::object pre_tokenizer_json(const GgufPreTokenizer& pre);

}  // namespace quire::tokenize
