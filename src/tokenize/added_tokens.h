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
  std::string normalized_content;  // what is looked for in normalized text, and what decoding starts from
  bool special = false;
  bool normalized = false;   // looked for after normalization, not before
  bool single_word = false;  // not beside a word character
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
};

/// The tokens that a file adds to its model's vocabulary. They are cut out of a text before the model sees
/// it.
class AddedTokens {
 public:
  /// From the array under `key` (absent: none). As in the reference library an entry that the model's
  /// vocabulary has gets that id, others are numbered on from its end, whatever the file says; a deviation
  /// is logged. Throws Error naming file and key.
  AddedTokens(const JsonObject& parent, std::string_view key, const Vocabulary& vocabulary,
              const Normalizer* normalizer);

  struct Part {
    Span span;
    const AddedToken* token;  // nullptr: text for the model
  };
  /// Cuts `text` at the tokens that are looked for before (false) or after (true) normalization.
  void cut(std::string_view text, bool normalized, std::vector<Part>& out) const;

  const AddedToken* find(TokenId id) const;
  const AddedToken* find(std::string_view content) const;
  /// One more than the highest id; 0 if there are none.
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
