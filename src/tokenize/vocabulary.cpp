#include "tokenize/vocabulary.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"

namespace quire::tokenize {

Vocabulary Vocabulary::from_json(const JsonObject& parent, std::string_view key) {
  const JsonObject object = parent.object(key);
  const size_t count = object.raw().size();
  const auto highest_allowed = static_cast<int64_t>(std::min<size_t>(4 * count + 65536, INT32_MAX / 2));
  size_t size = 0;
  size_t aliases = 0;
  for (const auto& [text, value] : object.raw()) {
    size = std::max(size, static_cast<size_t>(object.integer(text, 0, highest_allowed)) + 1);
  }
  Vocabulary vocabulary;
  vocabulary.texts_.resize(size);
  vocabulary.used_.resize(size);
  vocabulary.ids_.reserve(count);
  for (const auto& [text, value] : object.raw()) {
    const auto id = static_cast<size_t>(object.integer(text, 0, highest_allowed));
    if (vocabulary.used_[id]) {
      ++aliases;
      continue;
    }
    vocabulary.used_[id] = true;
    vocabulary.texts_[id] = text;
    vocabulary.ids_.emplace(vocabulary.texts_[id], static_cast<TokenId>(id));
  }
  if (aliases == 0) return vocabulary;
  vocabulary.aliases_.reserve(aliases);
  for (const auto& [text, value] : object.raw()) {
    if (vocabulary.find(text) >= 0) continue;
    const std::string& alias = vocabulary.aliases_.emplace_back(text);
    const auto id = static_cast<TokenId>(value.to_number<int64_t>());
    vocabulary.ids_.emplace(alias, id);
    if (vocabulary.aliases_.size() > 1) continue;
    const std::string others = aliases > 1 ? fmt::format(" ({} such entries)", aliases) : "";
    log_warning(fmt::format("{}: key '{}': has the id {} of '{}', for which it is decoded{}",
                            object.where().string(), object.path(text), id, *vocabulary.text(id), others));
  }
  return vocabulary;
}

tl::expected<Vocabulary, size_t> Vocabulary::from_list(std::vector<std::string> texts) {
  Vocabulary vocabulary;
  vocabulary.texts_ = std::move(texts);
  vocabulary.used_.assign(vocabulary.texts_.size(), true);
  vocabulary.ids_.reserve(vocabulary.texts_.size());
  for (size_t i = 0; i < vocabulary.texts_.size(); ++i) {
    if (!vocabulary.ids_.emplace(vocabulary.texts_[i], static_cast<TokenId>(i)).second)
      return tl::unexpected(i);
  }
  return vocabulary;
}

}  // namespace quire::tokenize
