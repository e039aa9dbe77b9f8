#include "grammar/regex.h"

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.h"

namespace quire::grammar {
namespace {

using Kind = Expression::Kind;

struct BadPattern {
  std::string message;
};

CharSet word_characters() {
  return CharSet::of_range('0', '9')
      .united(CharSet::of_range('A', 'Z'))
      .united(CharSet::of_range('a', 'z'))
      .united(character('_'));
}

/// ECMA-262's WhiteSpace and LineTerminator.
CharSet white_space() {
  CharSet out = CharSet::of_range('\t', '\r').united(character(' '));
  for (const char32_t code : {0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF}) {
    out = out.united(character(code));
  }
  return out.united(CharSet::of_range(0x2000, 0x200A));
}

CharSet line_ends() {
  return character('\n').united(character('\r')).united(CharSet::of_range(0x2028, 0x2029));
}

/// The characters of \p{name}. Each takes some milliseconds, so they are kept; there are a few hundred names.
/// Throws std::invalid_argument for others.
const CharSet& known_property(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, CharSet> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  return known.emplace(name, CharSet::of_class("\\p{" + name + "}")).first->second;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expression parse() {
    Expression out = alternatives();
    if (!done()) wrong("an unmatched ')'");
    return out;
  }

 private:
  bool done() const { return at_ == text_.size(); }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!next_is(what)) return false;
    at_ += what.size();
    return true;
  }
  char32_t take_character() {
    if (done()) wrong("it ends too early");
    const Utf8Char next = utf8_at(text_, at_);
    at_ += next.size;
    return next.code;
  }
  [[noreturn]] void wrong(std::string_view what) const {
    throw BadPattern{fmt::format("{}, at character {}", what, count_utf8(text_.substr(0, at_)))};
  }

  Expression alternatives() {
    if (++depth_ > kMaxRegexDepth) wrong(fmt::format("groups are more than {} deep", kMaxRegexDepth));
    std::vector<Expression> out;
    do {
      std::vector<Expression> parts;
      while (!done() && !next_is("|") && !next_is(")")) parts.push_back(quantified());
      out.push_back(sequence(std::move(parts)));
    } while (take("|"));
    --depth_;
    return choice(std::move(out));
  }

  Expression quantified() {
    Expression out = atom();
    uint32_t min = 0;
    uint32_t max = Expression::kUnbounded;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      min = max = count();
      if (take(",")) max = next_is("}") ? Expression::kUnbounded : count();
      if (!take("}")) wrong("'{' begins no count");
      if (max < min) wrong("a count whose upper bound is below the lower one");
    } else {
      return out;
    }
    if (out.kind == Kind::kBegin || out.kind == Kind::kEnd) wrong("a repeated anchor");
    take("?");  // lazy: the same texts
    if (next_is("*") || next_is("+") || next_is("?") || next_is("{")) wrong("two quantifiers in a row");
    return repeat(std::move(out), min, max);
  }

  uint32_t count() {
    uint32_t out = 0;
    if (done() || text_[at_] < '0' || text_[at_] > '9') wrong("'{' begins no count");
    while (!done() && text_[at_] >= '0' && text_[at_] <= '9') {
      out = out * 10 + static_cast<uint32_t>(text_[at_++] - '0');
      if (out > kMaxRegexRepeat) wrong(fmt::format("a repetition of more than {}", kMaxRegexRepeat));
    }
    return out;
  }

  Expression atom() {
    if (take("(")) return group();
    if (take("[")) return one_of(character_class());
    if (take(".")) return one_of(line_ends().complement());
    Expression anchor;
    anchor.kind = next_is("^") ? Kind::kBegin : Kind::kEnd;
    if (take("^") || take("$")) return anchor;
    if (next_is("*") || next_is("+") || next_is("?")) wrong("a quantifier after nothing");
    if (next_is("{") || next_is("}") || next_is("]"))
      wrong(fmt::format("'{}' without its partner", text_[at_]));
    if (take("\\")) {
      if (next_is("b") || next_is("B")) wrong("word boundaries (\\b, \\B) are not supported");
      if (next_is("k") || (!done() && text_[at_] >= '1' && text_[at_] <= '9')) {
        wrong("backreferences are not supported");
      }
      return one_of(escape());
    }
    return one_of(character(take_character()));
  }

  Expression group() {
    if (take("?")) {
      if (next_is("=") || next_is("!") || next_is("<=") || next_is("<!")) {
        wrong("lookahead and lookbehind are not supported");
      }
      take("P");  // Python's (?P<name>...)
      if (take("<")) {
        while (!take(">")) take_character();
      } else if (!take(":")) {
        wrong("groups with flags are not supported");
      }
    }
    Expression out = alternatives();
    if (!take(")")) wrong("a '(' without its ')'");
    return out;
  }

  CharSet character_class() {
    const bool negated = take("^");
    CharSet out;
    while (!take("]")) {
      if (done()) wrong("a '[' without its ']'");
      const auto [members, first] = class_member();
      if (!next_is("-") || next_is("-]")) {
        out = out.united(members);
        continue;
      }
      take("-");
      const char32_t last = class_member().second;
      if (first == kNone || last == kNone) wrong("a range between classes");
      if (last < first) wrong("a range that ends before it begins");
      out = out.united(CharSet::of_range(first, last));
    }
    return negated ? out.complement() : out;
  }

  static constexpr char32_t kNone = 0xFFFFFFFF;

  /// And its only character, if it is not a class.
  std::pair<CharSet, char32_t> class_member() {
    CharSet members;
    if (!take("\\")) {
      members = character(take_character());
    } else if (take("b")) {
      members = character('\b');
    } else {
      members = escape();
    }
    const std::vector<CharSet::Range>& ranges = members.ranges();
    const bool single = ranges.size() == 1 && ranges[0].first == ranges[0].last;
    return {members, single ? ranges[0].first : kNone};
  }

  /// After the backslash.
  CharSet escape() {
    const char32_t code = take_character();
    switch (code) {
      case 'd':
        return CharSet::of_range('0', '9');
      case 'D':
        return CharSet::of_range('0', '9').complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return white_space();
      case 'S':
        return white_space().complement();
      case 't':
        return character('\t');
      case 'n':
        return character('\n');
      case 'r':
        return character('\r');
      case 'f':
        return character('\f');
      case 'v':
        return character('\v');
      case '0':
        return character(0);
      case 'c':
        return character(take_character() % 32);
      case 'x':
        return character(hex(2));
      case 'u':
        return character(unicode());
      case 'p':
      case 'P':
        return property(code == 'P');
      default:
        break;
    }
    if ((code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || (code >= '1' && code <= '9')) {
      wrong(fmt::format("the escape \\{} is not supported", static_cast<char>(code)));
    }
    return character(code);
  }

  char32_t hex(size_t digits) {
    char32_t out = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char32_t digit = take_character();
      if (digit >= '0' && digit <= '9') {
        out = out * 16 + (digit - '0');
      } else if ((digit >= 'a' && digit <= 'f') || (digit >= 'A' && digit <= 'F')) {
        out = out * 16 + ((digit | 0x20) - 'a' + 10);
      } else {
        wrong("an escape without its hexadecimal digits");
      }
    }
    return out;
  }

  /// After "\u": four digits, two such that are a surrogate pair, or digits in braces.
  char32_t unicode() {
    if (take("{")) {
      const size_t end = text_.find('}', at_);
      if (end == std::string_view::npos || end == at_ || end - at_ > 6)
        wrong("\\u{ without up to six digits and }");
      const char32_t code = hex(end - at_);
      take("}");
      if (code > 0x10FFFF) wrong("a code point beyond U+10FFFF");
      return code;
    }
    const char32_t first = hex(4);
    if (first < 0xD800 || first > 0xDBFF || !take("\\u")) return first;
    const char32_t second = hex(4);
    if (second < 0xDC00 || second > 0xDFFF) wrong("half a surrogate pair");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  CharSet property(bool negated) {
    if (!take("{")) wrong("\\p without its braces");
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) wrong("\\p without its braces");
    std::string name(text_.substr(at_, end - at_));
    at_ = end + 1;
    for (const std::string_view prefix : {"General_Category=", "gc=", "Script=", "sc="}) {
      if (name.starts_with(prefix)) name.erase(0, prefix.size());
    }
    static const std::map<std::string, std::string> kLongNames = {
        {"Letter", "L"}, {"Lowercase_Letter", "Ll"}, {"Uppercase_Letter", "Lu"},
        {"Number", "N"}, {"Decimal_Number", "Nd"},   {"Punctuation", "P"},
        {"Symbol", "S"}, {"Separator", "Z"},         {"Mark", "M"}};
    if (const auto found = kLongNames.find(name); found != kLongNames.end()) name = found->second;
    if (name.size() > 40 || name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") !=
                                std::string::npos) {
      wrong("an unknown property");
    }
    if (properties_.insert(name).second && properties_.size() > 8) wrong("more than 8 different properties");
    try {
      const CharSet& set = known_property(name);
      return negated ? set.complement() : set;
    } catch (const std::invalid_argument&) {
      wrong("an unknown property");
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t depth_ = 0;
  std::set<std::string> properties_;  // those met
};

bool has_anchor(const Expression& of) { return has(of, Kind::kBegin) || has(of, Kind::kEnd); }

Expression anything() { return repeat(one_of(any_character()), 0, Expression::kUnbounded); }

/// The same without anchors. `before`, `after`: any text may stand there, unless an anchor forbids it.
Expression resolved(const Expression& of, bool before, bool after) {
  if (of.kind == Kind::kChoice && has_anchor(of)) {
    std::vector<Expression> parts;
    for (const Expression& part : of.parts) parts.push_back(resolved(part, before, after));
    return choice(std::move(parts));
  }
  std::vector<Expression> parts = of.kind == Kind::kSequence ? of.parts : std::vector{of};
  while (!parts.empty() && parts.front().kind == Kind::kBegin) {
    before = false;
    parts.erase(parts.begin());
  }
  while (!parts.empty() && parts.back().kind == Kind::kEnd) {
    after = false;
    parts.pop_back();
  }
  if (parts.empty()) return before || after ? anything() : sequence({});
  if (parts.size() == 1 && has_anchor(parts[0]) && parts[0].kind != Kind::kRepeat) {
    return resolved(parts[0], before, after);
  }
  const BadPattern misplaced{"^ and $ may only stand at the ends of the expression"};
  if (has_anchor(parts.front()) && parts.front().kind == Kind::kChoice) {
    if (has(parts.front(), Kind::kEnd)) throw misplaced;
    parts.front() = resolved(parts.front(), before, false);
    before = false;
  }
  if (has_anchor(parts.back()) && parts.back().kind == Kind::kChoice) {
    if (has(parts.back(), Kind::kBegin)) throw misplaced;
    parts.back() = resolved(parts.back(), false, after);
    after = false;
  }
  for (const Expression& part : parts) {
    if (has_anchor(part)) throw misplaced;
  }
  if (before) parts.insert(parts.begin(), anything());
  if (after) parts.push_back(anything());
  return sequence(std::move(parts));
}

tl::expected<Expression, std::string> parsed(std::string_view text, bool searched) {
  if (text.size() > kMaxRegexBytes) {
    return tl::unexpected(fmt::format("it has {} bytes, more than {}", text.size(), kMaxRegexBytes));
  }
  try {
    const Expression all = resolved(Parser(text).parse(), searched, searched);
    if (unrolled_size(all) > kMaxRegexSize)
      return tl::unexpected(std::string("its repetitions are too large together"));
    std::optional<Expression> left = without_dead_parts(all);
    if (!left) return tl::unexpected(std::string("no text matches it"));
    return std::move(*left);
  } catch (const BadPattern& wrong) {
    return tl::unexpected(wrong.message);
  }
}

}  // namespace

tl::expected<Expression, std::string> parse_searched(std::string_view text) { return parsed(text, true); }
tl::expected<Expression, std::string> parse_whole(std::string_view text) { return parsed(text, false); }

}  // namespace quire::grammar
