#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "tokenize/normalizer.h"
#include "tokenize/split.h"
#include "tokenize/text_finder.h"
#include "tokenize/vocabulary.h"

namespace quire::tokenize {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  std::string normalized_content;  // the text to find in normalized text, and the input of decoding
  bool special = false;
  bool normalized = false;   // found after normalization, not before
  bool single_word = false;  // not next to a word character
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
};

/// The tokens that a file adds to its model's vocabulary. They are removed from a text before the model
/// encodes it.
class AddedTokens {
 public:
  /// From the array under `key` (absent: none). As in the reference library, an entry that is in the model's
  /// vocabulary gets that id, and the others are numbered from its end, whatever the file says; a difference
  /// is logged. Throws Error naming file and key.
  AddedTokens(const JsonObject& parent, std::string_view key, const Vocabulary& vocabulary,
              const Normalizer* normalizer);

  struct Part {
    Span span;
    const AddedToken* token;  // nullptr: text for the model
  };
  /// Splits `text` at the tokens that are found before (false) or after (true) normalization.
  void cut(std::string_view text, bool normalized, std::vector<Part>& out) const;

  const AddedToken* find(TokenId id) const;
  const AddedToken* find(std::string_view content) const;
  /// The highest id plus one; 0 if there are none.
  size_t id_end() const { return id_end_; }

 private:
  TextFinder make_finder(bool normalized) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<TokenId, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  std::array<TextFinder, 2> finders_;  // [normalized]
  size_t id_end_ = 0;
};

}  // namespace quire::tokenize
