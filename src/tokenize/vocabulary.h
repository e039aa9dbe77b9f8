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

  /// From {"text": id, ...} under `key`. Ids may have gaps, but not so many that the file would not justify
  /// the table; of two texts with one id, the first stands for it in decoding, and a
  /// warning names the second. Throws Error.
  static Vocabulary from_json(const JsonObject& parent, std::string_view key);
  /// `texts[i]` gets the id i. The error is the number of the first that equals a former one.
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
  /// One more than the highest id.
  size_t size() const { return texts_.size(); }
  /// How many texts there are.
  size_t count() const { return ids_.size(); }
  bool ids_are_unique() const { return aliases_.empty(); }

 private:
  std::vector<std::string> texts_;  // by id
  std::vector<bool> used_;
  std::vector<std::string> aliases_;  // texts whose id already stands for another
  boost::unordered_flat_map<std::string_view, TokenId> ids_;
};

}  // namespace quire::tokenize
