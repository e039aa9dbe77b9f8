#include "tokenize/regex_class.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

namespace quire::tokenize {
namespace {

constexpr std::string_view kNoCharacter = R"([^\x{0}-\x{10ffff}])";
constexpr std::string_view kAnyCharacter = R"([\x{0}-\x{10ffff}])";
constexpr size_t kMostKinds = 64;  // of characters in sets of sets

/// PCRE2 has no sets in sets.
bool is_plain(const CharClass& of) {
  const auto plain = [](const auto& member) { return !member.negated && member.nested.empty(); };
  return of.operands.size() == 1 && std::ranges::all_of(of.operands.front(), plain);
}

/// With (?i), upper-case letters become all letters, but PCRE2's \p{Lu} does not.
bool has_property(const CharClass& of) {
  return std::ranges::any_of(of.operands.front(), [](const auto& member) {
    return member.text.find("\\p") != std::string::npos || member.text.find("\\P") != std::string::npos;
  });
}

}  // namespace

std::string ClassWriter::write(const CharClass& of, bool caseless) {
  std::string members;
  if (is_plain(of) && !(caseless && has_property(of))) {
    for (const CharClass::Member& member : of.operands.front()) members += member.text;
  } else {
    members = members_of(evaluate(of), caseless);
  }
  if (members.empty()) return std::string(of.negated ? kAnyCharacter : kNoCharacter);
  return fmt::format("[{}{}]", of.negated ? "^" : "", members);
}

const CharSet& ClassWriter::characters(const std::string& members) {
  const auto [place, is_new] = kinds_.try_emplace(members);
  if (!is_new) return place->second;
  if (kinds_.size() > kMostKinds) {
    throw std::invalid_argument("a pattern with this many kinds of characters in nested sets");
  }
  place->second = CharSet::of_class(members);
  return place->second;
}

/// Without the negation of the whole.
CharSet ClassWriter::evaluate(const CharClass& of) {
  CharSet out = CharSet().complement();
  for (const auto& operand : of.operands) {
    CharSet all;
    for (const CharClass::Member& member : operand) {
      const bool is_set = !member.nested.empty();
      const CharSet own = is_set ? evaluate(member.nested.front()) : characters(member.text);
      const bool negated = is_set ? member.nested.front().negated : member.negated;
      all = all.united(negated ? own.complement() : own);
    }
    out = out.intersected(all);
  }
  return out;
}

/// Uses a property, which is short, for many characters if all of them are in the set.
std::string ClassWriter::members_of(const CharSet& whole, bool caseless) const {
  std::string out;
  CharSet rest = whole;
  for (const auto& [members, set] : kinds_) {
    const bool is_property = members.starts_with("\\p{") || members.starts_with("\\P{");
    if (caseless || !is_property || set.intersected(rest).ranges().empty() || !whole.includes(set)) continue;
    out += members;
    rest = rest.intersected(set.complement());
  }
  return out + rest.members();
}

}  // namespace quire::tokenize
