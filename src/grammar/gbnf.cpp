#include "grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.h"
#include "grammar/ebnf.h"
#include "grammar/expression.h"
#include "grammar/regex.h"

namespace quire::grammar {
namespace {

using Kind = Expression::Kind;
using RuleMap = std::map<std::string, Expression, std::less<>>;

struct BadRule {
  std::string message;
};

constexpr size_t kMaxInlinedSize = 2'000;  // sets of a rule that becomes part of the automaton of another

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  RuleMap read() {
    RuleMap rules;
    for (skip_space(); !done(); skip_space()) {
      const std::string name = take_name();
      skip_space();
      if (name.empty() || !take("::=")) wrong("a rule must begin with 'name ::='");
      if (rules.size() == kMaxGbnfRules) wrong(fmt::format("more than {} rules", kMaxGbnfRules));
      if (rules.contains(name)) wrong(fmt::format("the rule '{}' is defined twice", name));
      rules.emplace(name, alternatives());
    }
    return rules;
  }

 private:
  bool done() const { return at_ == text_.size(); }
  char now() const { return done() ? '\0' : text_[at_]; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  [[noreturn]] void wrong(std::string_view what) const {
    throw BadRule{fmt::format("{}, in line {}", what, 1 + std::ranges::count(text_.substr(0, at_), '\n'))};
  }

  void skip_space() {
    while (!done()) {
      if (now() == '#') {
        while (!done() && now() != '\n') ++at_;
      } else if (std::string_view(" \t\r\n").find(now()) != std::string_view::npos) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string take_name() {
    const size_t begin = at_;
    while (!done() && is_name(now())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  /// Whether a name is here that begins the next rule.
  bool at_next_rule() {
    const size_t here = at_;
    const bool named = !take_name().empty();
    skip_space();
    const bool out = named && take("::=");
    at_ = here;
    return out;
  }

  Expression alternatives() {
    if (++depth_ > kMaxRegexDepth) wrong(fmt::format("groups are more than {} deep", kMaxRegexDepth));
    std::vector<Expression> ways;
    do {
      std::vector<Expression> parts;
      for (skip_space(); !done() && now() != '|' && now() != ')' && !at_next_rule(); skip_space())
        parts.push_back(item());
      ways.push_back(sequence(std::move(parts)));
    } while (take("|"));
    --depth_;
    return choice(std::move(ways));
  }

  Expression item() {
    Expression out = symbol();
    for (;;) {
      const size_t here = at_;
      skip_space();
      if (take("*")) {
        out = repeat(std::move(out), 0, Expression::kUnbounded);
      } else if (take("+")) {
        out = repeat(std::move(out), 1, Expression::kUnbounded);
      } else if (take("?")) {
        out = repeat(std::move(out), 0, 1);
      } else if (take("{")) {
        out = counted(std::move(out));
      } else {
        at_ = here;
        return out;
      }
    }
  }

  Expression counted(Expression of) {
    skip_space();
    const uint32_t min = now() == ',' ? 0 : count();
    uint32_t max = min;
    skip_space();
    if (take(",")) {
      skip_space();
      max = now() == '}' ? Expression::kUnbounded : count();
    }
    skip_space();
    if (!take("}")) wrong("a '{' without its '}'");
    if (max < min) wrong("a count whose upper bound is below the lower one");
    return repeat(std::move(of), min, max);
  }

  uint32_t count() {
    uint32_t out = 0;
    if (now() < '0' || now() > '9') wrong("a '{' without a number");
    for (; now() >= '0' && now() <= '9'; ++at_) {
      out = out * 10 + static_cast<uint32_t>(now() - '0');
      if (out > kMaxRegexRepeat) wrong(fmt::format("a repetition of more than {}", kMaxRegexRepeat));
    }
    return out;
  }

  Expression symbol() {
    if (take("\"")) return quoted_text();
    if (take("[")) return one_of(character_class());
    if (take(".")) return one_of(any_character());
    if (take("(")) {
      Expression out = alternatives();
      if (!take(")")) wrong("a '(' without its ')'");
      return out;
    }
    if (now() == '<' || now() == '!') wrong("tokens (<...>) are not supported");
    Expression out;
    out.kind = Kind::kRule;
    out.rule = take_name();
    if (out.rule.empty())
      wrong(fmt::format("'{}' begins nothing that a rule may hold", utf8_prefix(text_.substr(at_), 4)));
    return out;
  }

  char32_t take_character() {
    if (done()) wrong("it ends too early");
    const Utf8Char next = utf8_at(text_, at_);
    at_ += next.size;
    if (next.code != '\\') return next.code;
    if (done()) wrong("it ends too early");
    const Utf8Char escaped = utf8_at(text_, at_);
    at_ += escaped.size;
    switch (escaped.code) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      default:
        break;
    }
    if (escaped.code < 0x80 && (is_name(static_cast<char>(escaped.code)) && escaped.code != '-')) {
      wrong(fmt::format("the escape \\{} is not supported", static_cast<char>(escaped.code)));
    }
    return escaped.code;
  }

  char32_t hex(size_t digits) {
    uint64_t out = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = now();
      const char low = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        out = out * 16 + static_cast<uint64_t>(c - '0');
      } else if (low >= 'a' && low <= 'f') {
        out = out * 16 + static_cast<uint64_t>(low - 'a' + 10);
      } else {
        wrong("an escape without its hexadecimal digits");
      }
    }
    if (out > 0x10FFFF) wrong("a code point beyond U+10FFFF");
    return static_cast<char32_t>(out);
  }

  Expression quoted_text() {
    std::vector<Expression> parts;
    while (!take("\"")) parts.push_back(one_of(character(take_character())));
    return sequence(std::move(parts));
  }

  CharSet character_class() {
    const bool negated = take("^");
    CharSet out;
    while (!take("]")) {
      const char32_t first = take_character();
      char32_t last = first;
      if (now() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        take("-");
        last = take_character();
      }
      if (last < first) wrong("a range that ends before it begins");
      out = out.united(CharSet::of_range(first, last));
    }
    return negated ? out.complement() : out;
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t depth_ = 0;
};

void collect_names(const Expression& of, std::set<std::string, std::less<>>& out) {
  if (of.kind == Kind::kRule) out.insert(of.rule);
  for (const Expression& part : of.parts) collect_names(part, out);
}

/// Whether a text exists, with those of the rules in `finite`.
bool is_finite(const Expression& of, const std::set<std::string, std::less<>>& finite) {
  const auto each = [&](const Expression& part) { return is_finite(part, finite); };
  switch (of.kind) {
    case Kind::kSet:
      return !of.set.empty();
    case Kind::kRule:
      return finite.contains(of.rule);
    case Kind::kChoice:
      return std::ranges::any_of(of.parts, each);
    case Kind::kRepeat:
      return of.min == 0 || each(of.parts[0]);
    default:
      return std::ranges::all_of(of.parts, each);
  }
}

void check(const RuleMap& rules) {
  if (!rules.contains("root")) throw BadRule{"the rule 'root' is missing"};
  std::set<std::string, std::less<>> finite;
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& [name, expression] : rules) {
      if (!finite.contains(name) && is_finite(expression, finite)) grows = finite.insert(name).second;
    }
  }
  for (const auto& [name, expression] : rules) {
    std::set<std::string, std::less<>> used;
    collect_names(expression, used);
    for (const std::string& other : used) {
      if (!rules.contains(other))
        throw BadRule{fmt::format("the rule '{}' uses '{}', which is not defined", name, other)};
    }
    if (!finite.contains(name)) throw BadRule{fmt::format("no text of the rule '{}' has an end", name)};
  }
}

/// Makes rules that use only each other without a cycle part of those that use them: one automaton is faster.
class Inliner {
 public:
  explicit Inliner(const RuleMap& rules) : rules_(rules) {}

  Expression inlined(const Expression& of) {
    if (of.kind == Kind::kRule) {
      const Expression* const regular = regular_rule(of.rule);
      return regular == nullptr ? of : *regular;
    }
    Expression out = of;
    for (Expression& part : out.parts) part = inlined(part);
    return out;
  }

 private:
  /// nullptr if it is none, or too large.
  const Expression* regular_rule(const std::string& name) {
    if (const auto known = known_.find(name); known != known_.end())
      return known->second ? &*known->second : nullptr;
    known_[name] = std::nullopt;  // while it is looked at, and for good if it uses itself
    Expression out = inlined(rules_.at(name));
    if (!has(out, Kind::kRule) && unrolled_size(out) <= kMaxInlinedSize) known_[name] = std::move(out);
    return known_[name] ? &*known_[name] : nullptr;
  }

  const RuleMap& rules_;
  std::map<std::string, std::optional<Expression>> known_;
};

std::string written(const RuleMap& rules, const std::string& root) {
  Inliner inliner(rules);
  std::map<std::string, std::string> names = {{"root", root}};
  const std::string prefix = root == "root" ? "" : root;
  std::vector<std::string> wanted = {"root"};
  std::string out;
  const auto renamed = [&](Expression& of, const auto& self) -> void {
    if (of.kind == Kind::kRule) {
      const auto [found, is_new] = names.try_emplace(of.rule, fmt::format("{}r{}", prefix, names.size()));
      if (is_new) wanted.push_back(of.rule);
      of.rule = found->second;
    }
    for (Expression& part : of.parts) self(part, self);
  };
  for (size_t i = 0; i < wanted.size(); ++i) {
    Expression expression = *without_dead_parts(inliner.inlined(rules.at(wanted[i])));
    renamed(expression, renamed);
    out += fmt::format("{} ::= {}\n", names.at(wanted[i]), body(expression));
  }
  return out;
}

}  // namespace

tl::expected<std::string, std::string> gbnf_grammar(std::string_view text, const std::string& root) {
  if (text.size() > kMaxGbnfBytes)
    return tl::unexpected(fmt::format("it has {} bytes, more than {}", text.size(), kMaxGbnfBytes));
  try {
    const RuleMap rules = Reader(text).read();
    check(rules);
    return written(rules, root);
  } catch (const BadRule& wrong) {
    return tl::unexpected(wrong.message);
  }
}

tl::expected<std::string, std::string> regex_grammar(std::string_view pattern) {
  tl::expected<Expression, std::string> parsed = parse_whole(pattern);
  if (!parsed) return tl::unexpected(std::move(parsed.error()));
  return fmt::format("root ::= {}\n", body(*parsed));
}

std::string choice_grammar(std::span<const std::string> texts) {
  std::vector<Expression> ways;
  for (const std::string& each : texts) ways.push_back(text(each));
  return fmt::format("root ::= {}\n", body(choice(std::move(ways))));
}

}  // namespace quire::grammar
