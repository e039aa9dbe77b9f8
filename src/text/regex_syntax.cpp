#define PCRE2_CODE_UNIT_WIDTH 8
#include <array>
#include <optional>
#include <pcre2.h>
#include <stdexcept>

#include <fmt/format.h>

#include "text/regex.h"
#include "text/utf8.h"

// Where Oniguruma and PCRE2 (with UTF, UCP, MULTILINE) read the same pattern differently:
//   \s \w \h \v    other sets of characters            -> written out as classes
//   \p{Han}        script; PCRE2 takes its extensions  -> \p{sc:Han}
//   [[:punct:]]    includes all symbols                -> written out
//   x{2,3}+        repeats again; PCRE2: possessive    -> (?:x{2,3})+
//   x{,3}          {0,3}; PCRE2: literal               -> x{0,3}
//   (?m:.)         . matches newlines; PCRE2's s       -> (?s:.)
//   [a[b]] [a&&b]  sets of sets                        -> refused
//   (*VERB)        refused by Oniguruma too
namespace quire {
namespace {

struct ClassName {
  std::string_view name;
  std::string_view members;  // to stand between [ and ]
};

// Oniguruma's \w: the first six are numbers that it counts as word characters in Latin-1 only.
constexpr std::string_view kWord = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

constexpr std::array kPosixClasses = {
    ClassName{"alnum", R"(\p{Alphabetic}\p{Nd})"},
    ClassName{"alpha", R"(\p{Alphabetic})"},
    ClassName{"ascii", R"(\x00-\x7f)"},
    ClassName{"cntrl", R"(\p{Cc})"},
    ClassName{"digit", R"(\p{Nd})"},
    ClassName{"lower", R"(\p{Lowercase})"},
    ClassName{"punct", R"(\p{P}\p{S})"},
    ClassName{"space", R"(\p{White_Space})"},
    ClassName{"upper", R"(\p{Uppercase})"},
    ClassName{"word", kWord},
    ClassName{"xdigit", R"(0-9A-Fa-f)"},
};

// Names of \p{...} that PCRE2 lacks or understands otherwise; in lower case, without spaces, - and _.
constexpr std::array kProperties = {
    ClassName{"alnum", R"(\p{Alphabetic}\p{Nd})"},
    ClassName{"alpha", R"(\p{Alphabetic})"},
    ClassName{"digit", R"(\p{Nd})"},
    ClassName{"lower", R"(\p{Lowercase})"},
    ClassName{"punct", R"(\p{P})"},
    ClassName{"space", R"(\p{White_Space})"},
    ClassName{"upper", R"(\p{Uppercase})"},
    ClassName{"word", kWord},
    ClassName{"letter", R"(\p{L})"},
    ClassName{"uppercaseletter", R"(\p{Lu})"},
    ClassName{"lowercaseletter", R"(\p{Ll})"},
    ClassName{"titlecaseletter", R"(\p{Lt})"},
    ClassName{"modifierletter", R"(\p{Lm})"},
    ClassName{"otherletter", R"(\p{Lo})"},
    ClassName{"mark", R"(\p{M})"},
    ClassName{"nonspacingmark", R"(\p{Mn})"},
    ClassName{"spacingmark", R"(\p{Mc})"},
    ClassName{"number", R"(\p{N})"},
    ClassName{"decimalnumber", R"(\p{Nd})"},
    ClassName{"letternumber", R"(\p{Nl})"},
    ClassName{"othernumber", R"(\p{No})"},
    ClassName{"punctuation", R"(\p{P})"},
    ClassName{"symbol", R"(\p{S})"},
    ClassName{"separator", R"(\p{Z})"},
    ClassName{"other", R"(\p{C})"},
    ClassName{"lc", R"(\p{Lu}\p{Ll}\p{Lt})"},
};

template <size_t N>
std::optional<std::string_view> find_class(const std::array<ClassName, N>& classes, std::string_view name) {
  for (const ClassName& entry : classes) {
    if (entry.name == name) return entry.members;
  }
  return std::nullopt;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether PCRE2 takes \p{sc:NAME}.
bool is_script(std::string_view name) {
  const std::string pattern = fmt::format("\\p{{sc:{}}}", name);
  int failed = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF,
                                   &failed, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (pos_ < in_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw Unsupported(fmt::format("bad pattern: {} is not supported (at byte {} of '{}')", what, pos_, in_));
  }
  char at(size_t pos) const { return pos < in_.size() ? in_[pos] : '\0'; }
  bool next_is(std::string_view text) const { return in_.substr(pos_).starts_with(text); }

  void step() {
    switch (in_[pos_]) {
      case '\\':
        atom_ = out_.size();
        escape(false);
        return;
      case '[':
        atom_ = out_.size();
        char_class();
        return;
      case '(':
        open_group();
        return;
      case ')':
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
        copy(1);
        return;
      case '{':
        interval();
        return;
      case '*':
      case '+':
      case '?':
      case '^':
      case '$':
      case '|':
        copy(1);
        return;
      default:
        atom_ = out_.size();
        copy(utf8_at(in_, pos_).size);
    }
  }

  void copy(size_t bytes) {
    out_ += in_.substr(pos_, bytes);
    pos_ += bytes;
  }

  /// Writes a set of characters, inside or outside brackets.
  void set(std::string_view members, bool negated, bool in_class) {
    if (in_class && negated) refuse("a negated class inside brackets");
    out_ += in_class ? std::string(members) : fmt::format("[{}{}]", negated ? "^" : "", members);
  }

  void escape(bool in_class) {
    if (pos_ + 1 >= in_.size()) refuse("a backslash at the end");
    const char c = in_[pos_ + 1];
    const auto replace = [&](std::string_view text) {
      out_ += text;
      pos_ += 2;
    };
    switch (c) {
      case 's':
        return replace(R"(\p{White_Space})");
      case 'S':
        return replace(R"(\P{White_Space})");
      case 'v':
        return replace(R"(\x0b)");
      case 'w':
      case 'W':
        set(kWord, c == 'W', in_class);
        pos_ += 2;
        return;
      case 'h':
      case 'H':
        set("0-9A-Fa-f", c == 'H', in_class);
        pos_ += 2;
        return;
      case 'p':
      case 'P':
        property(in_class);
        return;
      case 'u': {
        const std::string_view digits = in_.substr(pos_ + 2, 4);
        if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) {
          refuse("\\u without four hexadecimal digits");
        }
        out_ += fmt::format("\\x{{{}}}", digits);
        pos_ += 6;
        return;
      }
      case 'Q':
      case 'E':
      case 'U':
      case 'L':
        return replace(std::string_view(&c, 1));  // no quoting here: the letter itself
      case 'N':
      case 'O':
      case 'y':
      case 'Y':
      case 'c':
      case 'C':
      case 'M':
        refuse(fmt::format("\\{}", c));
      default:
        copy(1 + (is_letter(c) ? 1 : utf8_at(in_, pos_ + 1).size));
    }
  }

  void property(bool in_class) {
    const bool negated_letter = in_[pos_ + 1] == 'P';
    if (at(pos_ + 2) != '{') return copy(2);
    const size_t end = in_.find('}', pos_);
    if (end == in_.npos) refuse("\\p{ without }");
    std::string_view name = in_.substr(pos_ + 3, end - pos_ - 3);
    bool negated = negated_letter;
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string plain;
    for (const char c : name) {
      if (c == ' ' || c == '-' || c == '_') continue;
      if (!is_letter(c) && !is_digit(c)) refuse(fmt::format("the property '{}'", name));
      plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    if (const auto members = find_class(kProperties, plain)) {
      set(*members, negated, in_class);
    } else {
      if (plain == "assigned") {
        negated = !negated;
        plain = "cn";
      }
      if (plain.size() <= 2 && !plain.empty()) plain[0] = static_cast<char>(plain[0] - 'a' + 'A');
      out_ += fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', is_script(plain) ? "sc:" : "", plain);
    }
    pos_ = end + 1;
  }

  void char_class() {
    copy(1);
    if (at(pos_) == '^') copy(1);
    if (at(pos_) == ']') copy(1);
    while (pos_ < in_.size() && in_[pos_] != ']') {
      if (in_[pos_] == '\\') {
        escape(true);
      } else if (next_is("[:")) {
        posix_class();
      } else if (in_[pos_] == '[') {
        refuse("a set inside a set");
      } else if (next_is("&&")) {
        refuse("an intersection of sets");
      } else {
        copy(utf8_at(in_, pos_).size);
      }
    }
    if (pos_ == in_.size()) refuse("[ without ]");
    copy(1);
  }

  void posix_class() {
    const size_t end = in_.find(":]", pos_);
    if (end == in_.npos) refuse("[: without :]");
    std::string_view name = in_.substr(pos_ + 2, end - pos_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    const auto members = find_class(kPosixClasses, name);
    if (!members) refuse(fmt::format("the class [:{}:]", name));
    set(*members, negated, true);
    pos_ = end + 2;
  }

  void open_group() {
    if (next_is("(*")) refuse("(*");
    groups_.push_back(out_.size());
    if (!next_is("(?")) return copy(1);
    if (next_is("(?C") || next_is("(?~") || next_is("(?R")) refuse(in_.substr(pos_, 3));
    if (next_is("(?#")) {
      const size_t end = in_.find(')', pos_);
      if (end == in_.npos) refuse("(?# without )");
      groups_.pop_back();
      pos_ = end + 1;
      return;
    }
    copy(2);
    while (at(pos_) == 'i' || at(pos_) == 'm' || at(pos_) == 'x' || at(pos_) == '-') {
      if (in_[pos_] == 'm') {
        out_ += 's';
        ++pos_;
      } else {
        copy(1);
      }
    }
  }

  void interval() {
    size_t end = pos_ + 1;
    while (is_digit(at(end))) ++end;
    const bool has_low = end > pos_ + 1;
    bool has_high = false;
    if (at(end) == ',') {
      ++end;
      const size_t high = end;
      while (is_digit(at(end))) ++end;
      has_high = end > high;
    }
    if (at(end) != '}' || (!has_low && !has_high)) {
      atom_ = out_.size();
      out_ += "\\{";
      ++pos_;
      return;
    }
    out_ += has_low ? "{" : "{0";
    ++pos_;
    copy(end + 1 - pos_);
    if (at(pos_) == '+') {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
  }

  std::string_view in_;
  size_t pos_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where in out_ the last thing starts that a quantifier would repeat
  std::vector<size_t> groups_;  // where the open groups start in out_
};

}  // namespace

tl::expected<std::string, std::string> oniguruma_to_pcre2(std::string_view pattern) {
  if (!is_valid_utf8(pattern)) return tl::unexpected<std::string>("bad pattern: not UTF-8");
  try {
    return Rewriter(pattern).run();
  } catch (const Unsupported& unsupported) {
    return tl::unexpected<std::string>(unsupported.what());
  }
}

}  // namespace quire
