#include "tokenize/split.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"

namespace quire::tokenize {

Pattern Pattern::from_json(const JsonObject& parent, std::string_view key) {
  const JsonObject object = parent.object(key);
  if (object.has("String")) return Pattern(object.string("String"));
  if (!object.has("Regex")) throw parent.error(key, "neither 'String' nor 'Regex' is given");
  auto regex = Regex::compile(object.string("Regex"));
  if (!regex) throw object.error("Regex", regex.error());
  return Pattern(std::move(*regex));
}

void Pattern::find_all(std::string_view text, std::vector<Span>& out) const {
  if (const auto* regex = std::get_if<Regex>(&what_)) return regex->find_all(text, out);
  const auto& literal = std::get<std::string>(what_);
  if (literal.empty()) {
    // As an empty regular expression: before every character and at the end.
    for (size_t pos = 0; pos <= text.size(); ++pos) {
      if (pos == text.size() || !continues_utf8(text[pos])) out.push_back({pos, pos});
    }
    return;
  }
  for (size_t at = text.find(literal); at != text.npos; at = text.find(literal, at + literal.size())) {
    out.push_back({at, at + literal.size()});
  }
}

SplitBehavior split_behavior_from_json(const JsonObject& parent, std::string_view key) {
  const std::string name = parent.string(key);
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw parent.error(key, fmt::format("unknown behavior '{}'", name));
}

namespace {

struct Part {
  Span span;
  bool is_delimiter;
};

/// Matches and what lies between them, in order; an empty match stays as an empty part.
std::vector<Part> cover(size_t size, const std::vector<Span>& matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  size_t done = 0;
  for (const Span& match : matches) {
    if (match.begin > done) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  }
  if (done < size) parts.push_back({{done, size}, invert});
  return parts;
}

}  // namespace

void split_at(size_t size, const std::vector<Span>& matches, bool invert, SplitBehavior behavior,
              std::vector<Span>& out) {
  std::vector<Part> parts = cover(size, matches, invert);
  std::vector<Span> merged;
  merged.reserve(parts.size());
  bool last_was_delimiter = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) merged.push_back(part.span);
      break;
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.is_delimiter) merged.push_back(part.span);
      }
      break;
    case SplitBehavior::kContiguous:
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& part : parts) {
        const bool join = behavior == SplitBehavior::kContiguous ? part.is_delimiter == last_was_delimiter
                                                                 : part.is_delimiter && !last_was_delimiter;
        if (join && !merged.empty()) {
          merged.back().end = part.span.end;
        } else {
          merged.push_back(part.span);
        }
        last_was_delimiter = part.is_delimiter;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      // From the end, so that of several delimiters in a row the last is the one merged.
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->is_delimiter && !last_was_delimiter && !merged.empty()) {
          merged.back().begin = part->span.begin;
        } else {
          merged.push_back(part->span);
        }
        last_was_delimiter = part->is_delimiter;
      }
      std::reverse(merged.begin(), merged.end());
  }
  for (const Span& span : merged) {
    if (span.begin < span.end) out.push_back(span);
  }
}

}  // namespace quire::tokenize
