#include "grammar/ebnf.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"

namespace quire::grammar {
namespace {

using Kind = Expression::Kind;

bool is_word(char32_t code) {
  return (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
}

std::string regex_character(char32_t code) {
  if (is_word(code)) return std::string(1, static_cast<char>(code));
  return fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(code));
}

/// The last characters whose UTF-8 has two, three and four bytes.
constexpr std::array<char32_t, 3> kLastOfLength = {0x7FF, 0xFFFF, 0x10FFFF};

/// A class for each length: over two of them, XGrammar 0.2.8 permits overlong forms too.
std::string regex_class(const CharSet& set) {
  std::vector<std::string> classes;
  char32_t begin = 0;
  for (const char32_t end : kLastOfLength) {
    std::string members;
    for (const CharSet::Range& range : set.ranges()) {
      const char32_t first = std::max(range.first, begin);
      const char32_t last = std::min(range.last, end);
      if (first > last) continue;
      members += regex_character(first);
      if (last > first) members += "-" + regex_character(last);
    }
    if (!members.empty()) classes.push_back("[" + members + "]");
    begin = end + 1;
  }
  const std::vector<CharSet::Range>& ranges = set.ranges();
  if (ranges.size() == 1 && ranges[0].first == ranges[0].last) return regex_character(ranges[0].first);
  return classes.size() == 1 ? classes[0] : fmt::format("(?:{})", fmt::join(classes, "|"));
}

std::string regex(const Expression& of);

std::string regex_repeat(const Expression& of) {
  const std::string inner = regex(of.parts[0]);
  const std::string part = of.parts[0].kind == Kind::kSet ? inner : "(?:" + inner + ")";
  // Not "?", with which XGrammar 0.2.8 lets a text begin in the middle of a part that ends with a loop.
  if (of.min == 0 && of.max == 1) return "(?:" + inner + "|)";
  if (of.min <= 1 && of.max == Expression::kUnbounded) return part + (of.min == 0 ? "*" : "+");
  std::string out;
  uint32_t min = of.min;
  uint32_t left = of.max;  // what may follow
  while (min > kMaxRepeat || (left != Expression::kUnbounded && left > kMaxRepeat)) {
    const uint32_t now = std::min(min, kMaxRepeat);
    out += fmt::format("{}{{{},{}}}", part, now, kMaxRepeat);
    min -= now;
    if (left != Expression::kUnbounded) left -= kMaxRepeat;
  }
  if (left == Expression::kUnbounded) return out + fmt::format("{0}{{{1},{1}}}{0}*", part, min);
  return left == 0 ? out : out + fmt::format("{}{{{},{}}}", part, min, left);
}

/// In XGrammar's syntax of regular expressions, which is whole and without anchors.
std::string regex(const Expression& of) {
  std::string out;
  switch (of.kind) {
    case Kind::kSet:
      return regex_class(of.set);
    case Kind::kSequence:
      for (const Expression& part : of.parts) {
        out += part.kind == Kind::kChoice ? "(?:" + regex(part) + ")" : regex(part);
      }
      return out;
    case Kind::kChoice:
      for (const Expression& part : of.parts)
        out += (out.empty() && &part == &of.parts[0] ? "" : "|") + regex(part);
      return out;
    case Kind::kRepeat:
      return of.max == 0 ? "" : regex_repeat(of);
    default:
      return out;
  }
}

bool is_character(const Expression& of) {
  return of.kind == Kind::kSet && of.set.ranges().size() == 1 &&
         of.set.ranges()[0].first == of.set.ranges()[0].last;
}

/// The text of an expression that matches only one; "" for others.
std::string only_text(const Expression& of) {
  std::string out;
  if (is_character(of)) append_utf8(out, of.set.ranges()[0].first);
  if (of.kind != Kind::kSequence) return out;
  for (const Expression& part : of.parts) {
    if (!is_character(part)) return "";
    append_utf8(out, part.set.ranges()[0].first);
  }
  return out;
}

std::string regular_body(const Expression& of) {
  if (lengths(of).max == 0) return "\"\"";
  if (const std::string only = only_text(of); !only.empty()) return literal(only);
  return "Regex(" + literal(regex(of)) + ")";
}

std::string repeat_body(const Expression& of) {
  const std::string part = "(" + body(of.parts[0]) + ")";
  if (of.max == 0) return "\"\"";
  if (of.max != Expression::kUnbounded) return fmt::format("{}{{{},{}}}", part, of.min, of.max);
  if (of.min <= 1) return part + (of.min == 0 ? "*" : "+");
  return fmt::format("{}{{{},}}", part, of.min);
}

}  // namespace

std::string literal(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_at(text, at);
    at += next.size;
    if (next.code == '"' || next.code == '\\') {
      out += '\\';
      out += static_cast<char>(next.code);
    } else if (next.code >= 0x20 && next.code < 0x7F) {
      out += static_cast<char>(next.code);
    } else if (next.code <= 0xFFFF) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(next.code));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(next.code));
    }
  }
  return out + '"';
}

std::string body(const Expression& of) {
  if (!has(of, Kind::kRule)) return regular_body(of);
  std::string out;
  switch (of.kind) {
    case Kind::kRule:
      return of.rule;
    case Kind::kRepeat:
      return repeat_body(of);
    case Kind::kChoice:
      for (const Expression& part : of.parts) out += (out.empty() ? "" : " | ") + body(part);
      return "(" + out + ")";
    default:
      break;
  }
  for (size_t i = 0; i < of.parts.size();) {  // what is regular and adjacent is one automaton
    std::vector<Expression> together;
    while (i < of.parts.size() && !has(of.parts[i], Kind::kRule)) together.push_back(of.parts[i++]);
    if (!out.empty()) out += ' ';
    out += together.empty() ? body(of.parts[i++]) : regular_body(sequence(std::move(together)));
  }
  return out;
}

std::string Rules::declare(std::string_view hint) { return fmt::format("{}_{}", hint, names_++); }

void Rules::define(const std::string& name, std::vector<Alternative> alternatives, uint32_t max_chars) {
  for (const Alternative& alternative : alternatives) bytes_ += alternative.body.size();
  rules_[name] = {std::move(alternatives), max_chars};
}

std::string Rules::shared(std::string_view hint, const std::string& body, uint32_t max_chars) {
  const std::string key = fmt::format("{} {}", max_chars, body);
  if (const auto found = by_body_.find(key); found != by_body_.end()) return found->second;
  std::string name = declare(hint);
  define(name, {{body, {}}}, max_chars);
  by_body_.emplace(key, name);
  return name;
}

std::string Rules::endless() const {
  // Each alternative by the number of its needs that are not known to be finite.
  struct Open {
    std::string_view rule;
    size_t needs;
  };
  std::vector<Open> open;
  std::map<std::string_view, std::vector<size_t>> needed_by;
  std::set<std::string_view> finite;
  std::vector<std::string_view> news;
  const auto end = [&](std::string_view name) {
    if (finite.insert(name).second) news.push_back(name);
  };
  for (const auto& [name, rule] : rules_) {
    for (const Alternative& alternative : rule.alternatives) {
      for (const std::string& need : alternative.needs) needed_by[need].push_back(open.size());
      open.push_back({name, alternative.needs.size()});
      if (alternative.needs.empty()) end(name);
    }
  }
  while (!news.empty()) {
    const std::string_view name = news.back();
    news.pop_back();
    for (const size_t number : needed_by[name]) {
      if (--open[number].needs == 0) end(open[number].rule);
    }
  }
  for (const auto& [name, rule] : rules_) {
    if (!finite.contains(name)) return name;
  }
  return "";
}

std::string Rules::text() const {
  std::string out;
  for (const auto& [name, rule] : rules_) {
    out += name;
    if (rule.max_chars != Expression::kUnbounded) out += fmt::format("[max_chars={}]", rule.max_chars);
    out += " ::= ";
    for (size_t i = 0; i < rule.alternatives.size(); ++i)
      out += (i == 0 ? "" : " | ") + rule.alternatives[i].body;
    out += '\n';
  }
  return out;
}

}  // namespace quire::grammar
