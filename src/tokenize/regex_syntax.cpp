#define PCRE2_CODE_UNIT_WIDTH 8
#include <optional>
#include <pcre2.h>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.h"
#include "tokenize/regex.h"
#include "tokenize/regex_class.h"
#include "tokenize/regex_names.h"

// Where Oniguruma and PCRE2 (with UTF, UCP, MULTILINE) read the same pattern differently:
//   \s \w \h \v    other sets of characters            -> written out as classes
//   \b \B          words are made of \w: marks too     -> looks to both sides
//   \xe4\xb8\xad   bytes of a character; PCRE2: three   -> \x{4e2d}
//   \p{Han}        script; PCRE2 takes its extensions  -> \p{sc:Han}
//   [[:punct:]]    includes all symbols                -> written out
//   a(?i)b|c       the rest of the group is one option -> a(?i:b|c)
//   (?i)[\p{Lu}]   all that differs by case alone      -> the characters, written out
//   x{2,3}+        repeats again; PCRE2: possessive    -> (?:x{2,3})+
//   x{,3}          {0,3}; PCRE2: literal               -> x{0,3}
//   (?m:.)         . matches newlines; PCRE2's s       -> (?s:.)
//   [a[b]] [a&&b]  sets of sets, and [^...] of all     -> the characters, written out
//   (*VERB)        refused by Oniguruma too
namespace quire::tokenize {
namespace {

using regex_names::find_class;
using regex_names::kPosixClasses;
using regex_names::kProperties;
using regex_names::kWord;
using regex_names::kWordInSet;

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

constexpr size_t kMostDepth = 32;               // of sets in sets
constexpr size_t kMostBytes = size_t{1} << 20;  // of the rewritten pattern

class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An open "(".
struct Group {
  size_t start = 0;  // in what is written
  bool caseless_before = false;
  size_t options = 0;  // groups opened within it by (?i) and its like
};

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (pos_ < in_.size()) step();
    close_options(groups_.front());
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw Unsupported(fmt::format("bad pattern: {} is not supported (at byte {} of '{}')", what, pos_, in_));
  }
  static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
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
        close_group();
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
    negated_member_ = in_class && negated;
    out_ += in_class ? std::string(members) : fmt::format("[{}{}]", negated ? "^" : "", members);
  }

  /// \b or \B.
  void word_boundary(bool is_boundary) {
    out_ += is_boundary ? fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord)
                        : fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord);
    pos_ += 2;
  }

  void code_point(uint32_t code) {
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      refuse(fmt::format("the code {:x}, which is not a character,", code));
    }
    out_ += fmt::format("\\x{{{:x}}}", code);
  }

  /// Up to `most` hexadecimal digits.
  uint32_t hex_digits(size_t most) {
    uint32_t code = 0;
    for (size_t i = 0; i < most && is_hex(at(pos_)); ++i, ++pos_) {
      const char c = in_[pos_];
      code = code * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return code;
  }

  /// \x{4e2d}, or \x41, or the bytes of a character: \xe4\xb8\xad.
  void hexadecimal() {
    if (at(pos_ + 2) == '{') {
      const size_t end = in_.find('}', pos_);
      const size_t digits = end == in_.npos ? 0 : end - pos_ - 3;
      if (digits < 1 || digits > 8) refuse("\\x{ without one to eight hexadecimal digits and }");
      pos_ += 3;
      const uint32_t code = hex_digits(digits);
      if (pos_ != end) refuse("\\x{ with other than hexadecimal digits");
      ++pos_;
      return code_point(code);
    }
    std::string bytes;
    do {
      pos_ += 2;
      const uint32_t byte = hex_digits(2);
      if (bytes.empty() && byte < 0x80) return code_point(byte);
      bytes += static_cast<char>(byte);
    } while (scan_utf8(bytes).status == Utf8Status::kIncomplete && next_is("\\x") && at(pos_ + 2) != '{');
    if (scan_utf8(bytes).status != Utf8Status::kValid) refuse("\\x of bytes that are not a character");
    code_point(utf8_at(bytes, 0).code);
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
        set(in_class ? kWordInSet : kWord, c == 'W', in_class);
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
      case 'x':
        return hexadecimal();
      case 'b':
      case 'B':
        if (!in_class) return word_boundary(c == 'b');
        return copy(2);
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
      set(in_class && *members == kWord ? kWordInSet : *members, negated, in_class);
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
    const CharClass parsed = parse_class(0);
    try {
      out_ += classes_.write(parsed, caseless_);
    } catch (const std::invalid_argument& wrong) {
      refuse(wrong.what());
    }
    if (out_.size() > kMostBytes) refuse("a pattern of this many characters");
  }

  CharClass parse_class(size_t depth) {
    if (depth > kMostDepth) refuse("a set nested this deeply");
    CharClass out;
    dash_ = false;
    ++pos_;
    if (at(pos_) == '^') {
      out.negated = true;
      ++pos_;
    }
    bool begun = false;  // a ] at the beginning is a character
    for (; pos_ < in_.size() && (in_[pos_] != ']' || !begun); begun = true) {
      if (next_is("&&")) {
        out.operands.emplace_back();
        dash_ = false;
        pos_ += 2;
      } else {
        parse_member(out.operands.back(), depth);
      }
    }
    if (pos_ == in_.size()) refuse("[ without ]");
    ++pos_;
    return out;
  }

  void parse_member(std::vector<CharClass::Member>& members, size_t depth) {
    const char c = in_[pos_];
    if (c == '[' && !is_posix_class()) {
      if (dash_ && members.back().text.size() > 1) refuse("a range that ends in a set");
      CharClass nested = parse_class(depth + 1);
      dash_ = false;
      members.emplace_back().nested.push_back(std::move(nested));
      return;
    }
    // What is written goes to a member of its own.
    const std::string before = std::exchange(out_, {});
    negated_member_ = false;
    dash_ = c == '-';
    if (c == '\\') {
      escape(true);
    } else if (c == '[') {
      posix_class();
    } else {
      // Special only in PCRE2: ^ and ] anywhere, "[.a.]", "[=a=]", "[:a:]".
      if (std::string_view("]^.=:").find(c) != std::string_view::npos) out_ += '\\';
      copy(utf8_at(in_, pos_).size);
    }
    CharClass::Member member{.text = std::exchange(out_, before), .negated = negated_member_, .nested = {}};
    member.is_property = member.text.starts_with("\\p") || member.text.starts_with("\\P");
    // Characters and ranges stay together: "a", "-" and "z" are one member.
    const bool joins = !member.negated && !member.is_property && !members.empty() &&
                       !members.back().negated && !members.back().is_property &&
                       members.back().nested.empty();
    if (joins) {
      members.back().text += member.text;
    } else {
      members.push_back(std::move(member));
    }
  }

  /// "[:alpha:]", and not a set that begins with ":".
  bool is_posix_class() const {
    if (!next_is("[:")) return false;
    const size_t end = in_.find(']', pos_ + 2);
    return end != in_.npos && end > pos_ + 2 && in_[end - 1] == ':';
  }

  void posix_class() {
    const size_t end = in_.find(":]", pos_);
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
    if (next_is("(?#")) {
      const size_t end = in_.find(')', pos_);
      if (end == in_.npos) refuse("(?# without )");
      pos_ = end + 1;
      return;
    }
    const size_t start = out_.size();
    const bool caseless = caseless_;
    if (!next_is("(?")) {
      copy(1);
    } else if (next_is("(?C") || next_is("(?~") || next_is("(?R")) {
      refuse(in_.substr(pos_, 3));
    } else {
      copy(2);
      options();
      if (at(pos_) == ')' && out_.size() > start + 2) {
        // As if everything that follows in this group, including alternatives, were in a separate group.
        ++pos_;
        out_ += ':';
        ++groups_.back().options;
        return;
      }
    }
    groups_.push_back({start, caseless});
  }

  void options() {
    bool on = true;
    for (;; ++pos_) {
      const char c = at(pos_);
      if (c == '-') on = false;
      if (c == 'i') caseless_ = on;
      if (c != 'i' && c != 'm' && c != 'x' && c != '-') return;
      out_ += c == 'm' ? 's' : c;
    }
  }

  void close_options(const Group& group) { out_.append(group.options, ')'); }

  void close_group() {
    if (groups_.size() > 1) {
      const Group group = groups_.back();
      groups_.pop_back();
      close_options(group);
      atom_ = group.start;
      caseless_ = group.caseless_before;
    }
    copy(1);
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
  size_t atom_ = 0;                   // where in out_ the last atom starts, which a quantifier would repeat
  std::vector<Group> groups_ = {{}};  // those that are open, the whole pattern first
  bool caseless_ = false;
  bool negated_member_ = false;  // of a class: what escape() or posix_class() wrote is to be negated
  bool dash_ = false;            // the last member of a class is a plain one
  ClassWriter classes_;
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

}  // namespace quire::tokenize
