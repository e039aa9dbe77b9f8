#include "tokenize/text_finder.h"

#include <algorithm>

namespace quire::tokenize {

TextFinder::TextFinder(const std::vector<std::string_view>& texts, const std::vector<size_t>& values) {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;
    entries_.push_back({std::string(texts[i]), values[i]});
    starts_[static_cast<unsigned char>(texts[i][0])] = true;
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.text < b.text; });
  const auto last = std::unique(entries_.begin(), entries_.end(),
                                [](const Entry& a, const Entry& b) { return a.text == b.text; });
  entries_.erase(last, entries_.end());
}

std::optional<TextFinder::Found> TextFinder::longest_at(std::string_view text, size_t at) const {
  // The entries that start with text[at .. at + depth) are a range of the sorted ones; narrow it byte by
  // byte.
  auto low = entries_.begin();
  auto high = entries_.end();
  std::optional<Found> best;
  for (size_t depth = 0; at + depth < text.size(); ++depth) {
    const auto byte = static_cast<unsigned char>(text[at + depth]);
    const auto byte_of = [&](const Entry& entry) { return static_cast<unsigned char>(entry.text[depth]); };
    low = std::partition_point(low, high, [&](const Entry& e) { return byte_of(e) < byte; });
    high = std::partition_point(low, high, [&](const Entry& e) { return byte_of(e) <= byte; });
    if (low == high) break;
    if (low->text.size() == depth + 1) {
      best = Found{{at, at + depth + 1}, low->value};
      if (++low == high) break;
    }
  }
  return best;
}

std::optional<TextFinder::Found> TextFinder::find(std::string_view text, size_t from) const {
  if (entries_.empty()) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    if (const auto found = find_at(text, at)) return found;
  }
  return std::nullopt;
}

}  // namespace quire::tokenize
