#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>
#include <tl/expected.hpp>

#include "base/ids.h"
#include "base/json.h"

namespace quire::tokenize {

/// The entries of a tokenizer's model, by id and by text. Movable, not copyable (the index points into it).
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// From {"text": id, ...} under `key`. Ids may have gaps, but not so many that the table would be much
  /// larger than the file. Of two texts with the same id, the first is used in decoding, and a warning names
  /// the second. Throws Error.
  static Vocabulary from_json(const JsonObject& parent, std::string_view key);
  /// `texts[i]` gets the id i. The error is the index of the first text that equals an earlier one.
  static tl::expected<Vocabulary, size_t> from_list(std::vector<std::string> texts);

  /// -1 if there is no such entry.
  TokenId find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? -1 : found->second;
  }
  /// nullptr if the id has no entry.
  const std::string* text(TokenId id) const {
    const auto i = static_cast<size_t>(id);
    return id >= 0 && i < texts_.size() && used_[i] ? &texts_[i] : nullptr;
  }
  /// The highest id plus one.
  size_t size() const { return texts_.size(); }
  /// The number of texts.
  size_t count() const { return ids_.size(); }
  bool ids_are_unique() const { return aliases_.empty(); }

 private:
  std::vector<std::string> texts_;  // by id
  std::vector<bool> used_;
  std::vector<std::string> aliases_;  // texts whose id already belongs to another text
  boost::unordered_flat_map<std::string_view, TokenId> ids_;
};

}  // namespace quire::tokenize
