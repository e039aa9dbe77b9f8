#include "grammar/expression.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"

namespace quire::grammar {
namespace {

using Kind = Expression::Kind;

uint32_t saturated(uint64_t amount) {
  return static_cast<uint32_t>(std::min<uint64_t>(amount, Expression::kUnbounded));
}

uint32_t times(uint32_t a, uint32_t b) {
  if (a == 0 || b == 0) return 0;
  if (a == Expression::kUnbounded || b == Expression::kUnbounded) return Expression::kUnbounded;
  return saturated(uint64_t{a} * b);
}

uint32_t plus(uint32_t a, uint32_t b) {
  return a == Expression::kUnbounded || b == Expression::kUnbounded ? Expression::kUnbounded
                                                                    : saturated(uint64_t{a} + b);
}

CharSet range(char32_t first, char32_t last) { return CharSet::of_range(first, last); }

CharSet characters(std::string_view ascii) {
  CharSet out;
  for (const char c : ascii)
    out = out.united(range(static_cast<unsigned char>(c), static_cast<unsigned char>(c)));
  return out;
}

using Positions = std::set<size_t>;

/// Where a match may end that begins at one of `from`.
Positions ends(const Expression& of, std::string_view text, const Positions& from, WorkLeft& work) {
  Positions out;
  work.spend(1 + from.size());
  switch (of.kind) {
    case Kind::kSet:
      for (const size_t at : from) {
        if (at == text.size()) continue;
        const Utf8Char next = utf8_at(text, at);
        if (of.set.contains(next.code)) out.insert(at + next.size);
      }
      return out;
    case Kind::kSequence:
      out = from;
      for (const Expression& part : of.parts) out = ends(part, text, out, work);
      return out;
    case Kind::kChoice:
      for (const Expression& part : of.parts) out.merge(ends(part, text, from, work));
      return out;
    case Kind::kRepeat: {
      Positions now = from;
      Positions seen;  // after the least number of times
      for (uint32_t i = 0; i < of.max && !now.empty(); ++i) {
        if (i >= of.min) {
          const size_t before = seen.size();
          seen.insert(now.begin(), now.end());
          if (seen.size() == before) return seen;
        }
        now = ends(of.parts[0], text, now, work);
      }
      seen.merge(now);
      return seen;
    }
    default:
      return out;
  }
}

}  // namespace

Expression one_of(CharSet set) {
  Expression out;
  out.kind = Kind::kSet;
  out.set = std::move(set);
  return out;
}

Expression sequence(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expression out;
  out.parts = std::move(parts);
  return out;
}

Expression choice(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expression out;
  out.kind = Kind::kChoice;
  out.parts = std::move(parts);
  return out;
}

Expression repeat(Expression part, uint32_t min, uint32_t max) {
  if (min == 1 && max == 1) return part;
  Expression out;
  out.kind = Kind::kRepeat;
  out.parts.push_back(std::move(part));
  out.min = min;
  out.max = max;
  return out;
}

Expression text(std::string_view text) {
  std::vector<Expression> parts;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_at(text, at);
    parts.push_back(one_of(range(next.code, next.code)));
    at += next.size;
  }
  return sequence(std::move(parts));
}

CharSet any_character() { return range(0, 0x10FFFF); }

std::optional<Expression> without_dead_parts(const Expression& of) {
  if (of.kind == Kind::kSet) return of.set.empty() ? std::nullopt : std::optional(of);
  Expression out = of;
  out.parts.clear();
  for (const Expression& part : of.parts) {
    std::optional<Expression> left = without_dead_parts(part);
    if (left) {
      out.parts.push_back(std::move(*left));
    } else if (of.kind == Kind::kSequence || (of.kind == Kind::kRepeat && of.min > 0)) {
      return std::nullopt;
    }
  }
  if (of.kind == Kind::kChoice) {
    if (out.parts.empty()) return std::nullopt;
    return choice(std::move(out.parts));
  }
  if (of.kind == Kind::kRepeat && out.parts.empty()) return sequence({});
  return out;
}

const CharSet& unescaped_in_json() {
  static const CharSet kSet = range(0, 0x1F).united(characters("\"\\")).complement();
  return kSet;
}

Expression json_character() {
  static const Expression kCharacter = [] {
    const auto hex = [] { return one_of(characters("0123456789abcdefABCDEF")); };
    const auto set = [](std::string_view of) { return one_of(characters(of)); };
    const Expression pair = sequence(
        {set("dD"), set("89abAB"), hex(), hex(), text("\\u"), set("dD"), set("cdefCDEF"), hex(), hex()});
    const Expression unit = choice({sequence({set("0123456789abcABCefEF"), hex(), hex(), hex()}),
                                    sequence({set("dD"), set("01234567"), hex(), hex()}), pair});
    return choice({one_of(unescaped_in_json()),
                   sequence({text("\\"), choice({set("\"\\/bfnrt"), sequence({text("u"), unit})})})});
  }();
  return kCharacter;
}

Expression in_json_string(const Expression& of) {
  if (of.kind == Kind::kSet) {
    if (of.set.complement().empty()) return json_character();
    std::vector<Expression> ways;
    if (CharSet plain = of.set.intersected(unescaped_in_json()); !plain.empty())
      ways.push_back(one_of(std::move(plain)));
    static constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
    static constexpr std::string_view kLetters = "\"\\bfnrt";
    std::string letters;
    for (size_t i = 0; i < kShort.size(); ++i) {
      if (of.set.contains(static_cast<unsigned char>(kShort[i]))) letters += kLetters[i];
    }
    if (!letters.empty()) ways.push_back(sequence({text("\\"), one_of(characters(letters))}));
    for (char32_t code = 0; code < 0x20; ++code) {
      if (!of.set.contains(code) || kShort.find(static_cast<char>(code)) != std::string_view::npos) continue;
      ways.push_back(text(fmt::format("\\u{:04x}", static_cast<uint32_t>(code))));
    }
    return choice(std::move(ways));
  }
  Expression out = of;
  for (Expression& part : out.parts) part = in_json_string(part);
  return out;
}

namespace {

/// What may follow the beginning of a mark.
struct Beginnings {
  Expression begun;   // more of a mark, but not all of it
  Expression broken;  // the same, and then a character that no mark goes on with, nor begins with
};

/// `rests`: what the marks still need.
Beginnings after(const std::vector<std::string_view>& rests, const CharSet& first) {
  std::map<char, std::vector<std::string_view>> next;
  for (const std::string_view rest : rests) next[rest.front()].push_back(rest.substr(1));
  CharSet others = any_character().intersected(first.complement());
  std::vector<Expression> begun = {sequence({})};
  std::vector<Expression> broken;
  for (const auto& [c, longer] : next) {
    const CharSet one = characters({&c, 1});
    others = others.intersected(one.complement());
    if (std::ranges::any_of(longer, [](std::string_view rest) { return rest.empty(); })) continue;
    Beginnings inner = after(longer, first);
    begun.push_back(sequence({one_of(one), std::move(inner.begun)}));
    broken.push_back(sequence({one_of(one), std::move(inner.broken)}));
  }
  broken.push_back(one_of(others));
  return {choice(std::move(begun)), choice(std::move(broken))};
}

}  // namespace

Expression text_without(std::span<const std::string_view> marks) {
  const CharSet first = characters(marks.front().substr(0, 1));
  std::vector<std::string_view> rests;
  for (const std::string_view mark : marks) rests.push_back(mark.substr(1));
  const Beginnings beginnings = after(rests, first);
  const Expression begun = repeat(sequence({one_of(first), beginnings.begun}), 0, Expression::kUnbounded);
  const Expression other = one_of(any_character().intersected(first.complement()));
  const Expression broken = sequence({begun, one_of(first), beginnings.broken});
  return sequence({repeat(choice({other, broken}), 0, Expression::kUnbounded), begun});
}

Lengths lengths(const Expression& of) {
  Lengths out;
  switch (of.kind) {
    case Kind::kSet:
      return {1, 1};
    case Kind::kSequence:
      for (const Expression& part : of.parts) {
        const Lengths of_part = lengths(part);
        out.min = plus(out.min, of_part.min);
        out.max = plus(out.max, of_part.max);
      }
      return out;
    case Kind::kChoice:
      out.min = Expression::kUnbounded;
      for (const Expression& part : of.parts) {
        const Lengths of_part = lengths(part);
        out.min = std::min(out.min, of_part.min);
        out.max = std::max(out.max, of_part.max);
      }
      return out;
    case Kind::kRepeat: {
      const Lengths of_part = lengths(of.parts[0]);
      return {times(of_part.min, of.min), times(of_part.max, of.max)};
    }
    default:
      return out;
  }
}

size_t unrolled_size(const Expression& of) {
  constexpr size_t kMost = size_t{1} << 40;
  if (of.kind == Kind::kSet) return 1;
  size_t out = 0;
  for (const Expression& part : of.parts) out += unrolled_size(part);
  if (of.kind == Kind::kRepeat) {
    const size_t count = of.max == Expression::kUnbounded ? size_t{of.min} + 1 : of.max;
    out *= std::max<size_t>(count, 1);
  }
  return std::min(out, kMost);
}

bool matches(const Expression& of, std::string_view text, WorkLeft& work) {
  return ends(of, text, {0}, work).contains(text.size());
}

bool has(const Expression& of, Expression::Kind kind) {
  return of.kind == kind ||
         std::ranges::any_of(of.parts, [&](const Expression& part) { return has(part, kind); });
}

}  // namespace quire::grammar
