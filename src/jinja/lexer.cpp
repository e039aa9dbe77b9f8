#include "jinja/lexer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/ops.h"
#include "jinja/sandbox.h"
#include "jinja/text.h"

namespace quire::jinja {
namespace {

using Type = Token::Type;

/// Newlines become \n; one at the end goes (keep_trailing_newline is off).
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view source, const Whitespace& whitespace)
      : source_(normalize_newlines(source)), whitespace_(whitespace) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) text();
    push(Type::kEnd, "", pos_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_at(size_t offset, std::string message) {
    const Position at = position(offset);
    throw Fault{.message = std::move(message), .line = at.line, .column = at.column};
  }

  /// Offsets mostly ascend, so that finding lines is linear in all.
  Position position(size_t offset) {
    if (offset < counted_) {
      counted_ = 0;
      at_ = {};
    }
    for (; counted_ < offset; ++counted_) {
      const auto c = static_cast<unsigned char>(source_[counted_]);
      if (c == '\n') {
        ++at_.line;
        at_.column = 1;
      } else if ((c & 0xC0) != 0x80) {
        ++at_.column;
      }
    }
    return at_;
  }

  void push(Type type, std::string text, size_t offset) {
    const Position at = position(offset);
    tokens_.push_back({type, std::move(text), at});
  }

  bool at(size_t offset, std::string_view wanted) const {
    return std::string_view(source_).substr(std::min(offset, source_.size())).starts_with(wanted);
  }

  size_t skip_space(size_t offset) const {
    while (offset < source_.size()) {
      const Utf8Char c = utf8_at(source_, offset);
      if (!is_python_space(c.code)) break;
      offset += c.size;
    }
    return offset;
  }

  /// The end of "%}" and the like at `offset` with its white space control, or npos.
  size_t closing(size_t offset, std::string_view end, bool plus, bool trims) const {
    if (at(offset, "-") && at(offset + 1, end)) return skip_space(offset + 1 + end.size());
    if (plus && at(offset, "+") && at(offset + 1, end)) return offset + 1 + end.size();
    if (!at(offset, end)) return std::string::npos;
    offset += end.size();
    return trims && whitespace_.trim_blocks && at(offset, "\n") ? offset + 1 : offset;
  }

  /// Text before a tag with the sign `sign` ('-', '+' or none), which begins at pos_ and ends at `end`.
  void data(size_t end, char sign, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(pos_, end - pos_);
    const bool line_starting = pos_ == 0 || source_[pos_ - 1] == '\n';
    if (sign == '-') {
      text = strip(text, nullptr, false, true);
    } else if (sign != '+' && whitespace_.lstrip_blocks && !is_variable) {
      const size_t newline = text.rfind('\n');
      if (newline != std::string_view::npos || line_starting) {
        const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
        if (strip(text.substr(line), nullptr, true, false).empty()) text = text.substr(0, line);
      }
    }
    if (!text.empty()) push(Type::kData, std::string(text), pos_);
  }

  char sign_at(size_t offset) const { return at(offset, "-") ? '-' : at(offset, "+") ? '+' : '\0'; }

  void text() {
    size_t open = pos_;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string::npos) {
        push(Type::kData, source_.substr(pos_), pos_);
        pos_ = source_.size();
        return;
      }
      if (at(open, "{%") || at(open, "{{") || at(open, "{#")) break;
      ++open;
    }
    const char what = source_[open + 1];
    const char sign = sign_at(open + 2);
    data(open, sign, what == '{');
    const size_t inside = open + 2 + (sign != '\0' ? 1 : 0);
    if (what == '#') {
      comment(open, inside);
    } else if (what == '{') {
      push(Type::kVariableBegin, "", open);
      pos_ = inside;
      tag(open, false);
    } else if (const size_t body = raw_begin(inside); body != std::string::npos) {
      raw(open, body);
    } else {
      push(Type::kBlockBegin, "", open);
      pos_ = inside;
      tag(open, true);
    }
  }

  void comment(size_t open, size_t inside) {
    const size_t hash = source_.find("#}", inside);
    if (hash == std::string::npos) fail_at(open, "Missing end of comment tag");
    const bool is_signed = hash > inside && (source_[hash - 1] == '-' || source_[hash - 1] == '+');
    pos_ = closing(is_signed ? hash - 1 : hash, "#}", true, true);
  }

  size_t raw_begin(size_t inside) const {
    size_t offset = skip_space(inside);
    if (!at(offset, "raw")) return std::string::npos;
    return closing(skip_space(offset + 3), "%}", false, false);
  }

  void raw(size_t open, size_t body) {
    pos_ = body;
    for (size_t end = source_.find("{%", body); end != std::string::npos; end = source_.find("{%", end + 1)) {
      const char sign = sign_at(end + 2);
      const size_t name = skip_space(end + 2 + (sign != '\0' ? 1 : 0));
      if (!at(name, "endraw")) continue;
      const size_t after = closing(skip_space(name + 6), "%}", true, true);
      if (after == std::string::npos) continue;
      data(end, sign, false);
      pos_ = after;
      return;
    }
    fail_at(open, "Missing end of raw directive");
  }

  void tag(size_t open, bool is_block) {
    std::string brackets;
    while (true) {
      if (brackets.empty()) {
        const size_t end = closing(pos_, is_block ? "%}" : "}}", is_block, is_block);
        if (end != std::string::npos) {
          push(is_block ? Type::kBlockEnd : Type::kVariableEnd, "", pos_);
          pos_ = end;
          return;
        }
      }
      if (pos_ >= source_.size()) fail_at(open, "the tag has no end");
      const size_t space = skip_space(pos_);
      if (space > pos_) {
        pos_ = space;
        continue;
      }
      if (number() || name() || quoted()) continue;
      bracketed_operator(brackets);
    }
  }

  size_t digits(size_t offset, std::string_view allowed) const {
    const auto is_allowed = [&](size_t i) {
      return i < source_.size() && allowed.find(source_[i]) != std::string_view::npos;
    };
    while (is_allowed(offset) || (at(offset, "_") && is_allowed(offset + 1))) ++offset;
    return offset;
  }

  bool number() {
    if (!is_digit_char(source_[pos_])) return false;
    constexpr std::string_view kDecimal = "0123456789";
    const size_t whole = digits(pos_, kDecimal);
    size_t end = whole;
    bool is_float = false;
    if ((pos_ == 0 || source_[pos_ - 1] != '.')) {
      if (at(end, ".") && end + 1 < source_.size() && is_digit_char(source_[end + 1])) {
        end = digits(end + 1, kDecimal);
        is_float = true;
      }
      if (at(end, "e") || at(end, "E")) {
        const size_t signed_exponent = end + 1 + (sign_at(end + 1) != '\0' ? 1 : 0);
        if (signed_exponent < source_.size() && is_digit_char(source_[signed_exponent])) {
          end = digits(signed_exponent, kDecimal);
          is_float = true;
        }
      }
    }
    if (!is_float) end = integer_end(whole);
    std::string text = source_.substr(pos_, end - pos_);
    std::erase(text, '_');
    push(is_float ? Type::kFloat : Type::kInteger, std::move(text), pos_);
    pos_ = end;
    return true;
  }

  size_t integer_end(size_t decimal_end) const {
    if (source_[pos_] != '0') return decimal_end;
    const std::pair<std::string_view, std::string_view> bases[] = {
        {"bB", "01"}, {"oO", "01234567"}, {"xX", "0123456789abcdefABCDEF"}};
    for (const auto& [letters, allowed] : bases) {
      if (pos_ + 1 >= source_.size() || letters.find(source_[pos_ + 1]) == std::string_view::npos) continue;
      const size_t end = digits(pos_ + 2, allowed);
      if (end > pos_ + 2) return end;
    }
    return digits(pos_, "0");
  }

  bool name() {
    size_t end = pos_;
    while (end < source_.size()) {
      const Utf8Char c = utf8_at(source_, end);
      const bool fits = c.code < 0x80 ? (c.code == '_' || (c.code >= '0' && c.code <= '9') ||
                                         ((c.code | 0x20) >= 'a' && (c.code | 0x20) <= 'z'))
                                      : is_word_char(c.code);
      if (!fits) break;
      end += c.size;
    }
    if (end == pos_) return false;
    std::string text = source_.substr(pos_, end - pos_);
    if (!is_identifier(text)) fail_at(pos_, "Invalid character in identifier");
    push(Type::kName, std::move(text), pos_);
    pos_ = end;
    return true;
  }

  bool quoted() {
    const char quote = source_[pos_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(pos_, "the string has no end");
    push(Type::kString, unescape(pos_ + 1, end), pos_);
    pos_ = end + 1;
    return true;
  }

  /// Python's unicode_escape codec.
  std::string unescape(size_t begin, size_t end) {
    std::string out;
    char32_t high = 0;  // the first half of a surrogate pair
    for (size_t i = begin; i < end;) {
      if (source_[i] != '\\') {
        const size_t size = utf8_at(source_, i).size;
        out.append(source_, i, size);
        i += size;
        continue;
      }
      const Utf8Char c = utf8_at(source_, i + 1);
      i += 1 + c.size;
      switch (c.code) {
        case '\n':
          break;
        case '\\':
        case '\'':
        case '"':
          out += static_cast<char>(c.code);
          break;
        case 'a':
          out += '\a';
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'n':
          out += '\n';
          break;
        case 'r':
          out += '\r';
          break;
        case 't':
          out += '\t';
          break;
        case 'v':
          out += '\v';
          break;
        case 'x':
          append_code(out, hex(i, end, 2), high, i);
          break;
        case 'u':
          append_code(out, hex(i, end, 4), high, i);
          break;
        case 'U':
          append_code(out, hex(i, end, 8), high, i);
          break;
        case 'N':
          fail_at(i - 2, "character names in strings are not supported");
        default:
          if (c.code >= '0' && c.code <= '7') {
            --i;
            append_code(out, octal(i, end), high, i);
          } else if (c.code < 0x80) {
            out += '\\';
            out += static_cast<char>(c.code);
          } else {
            // What the codec makes of it, having escaped the character itself before.
            const auto code = static_cast<uint32_t>(c.code);
            out += code < 0x100     ? fmt::format("\\x{:02x}", code)
                   : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                    : fmt::format("\\U{:08x}", code);
          }
      }
    }
    return out;
  }

  char32_t hex(size_t& i, size_t end, size_t count) {
    char32_t code = 0;
    for (size_t k = 0; k < count; ++k, ++i) {
      const char c = i < end ? source_[i] : '\0';
      const char lower_case = static_cast<char>(c | 0x20);
      if (is_digit_char(c)) {
        code = code * 16 + static_cast<char32_t>(c - '0');
      } else if (lower_case >= 'a' && lower_case <= 'f') {
        code = code * 16 + static_cast<char32_t>(lower_case - 'a' + 10);
      } else {
        fail_at(i, "truncated escape in a string");
      }
    }
    if (code > 0x10FFFF) fail_at(i, "illegal Unicode character");
    return code;
  }

  char32_t octal(size_t& i, size_t end) {
    char32_t code = 0;
    for (size_t k = 0; k < 3 && i < end && source_[i] >= '0' && source_[i] <= '7'; ++k, ++i) {
      code = code * 8 + static_cast<char32_t>(source_[i] - '0');
    }
    return code;
  }

  /// Joins the two halves of a surrogate pair; a lone half cannot be written and becomes U+FFFD.
  void append_code(std::string& out, char32_t code, char32_t& high, size_t& i) {
    if (code >= 0xD800 && code < 0xDC00 && at(i, "\\u")) {
      high = code;
      size_t next = i + 2;
      const char32_t low = hex(next, source_.size(), 4);
      if (low >= 0xDC00 && low < 0xE000) {
        append_utf8(out, 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
        i = next;
        return;
      }
    }
    append_utf8(out, code >= 0xD800 && code < 0xE000 ? 0xFFFD : code);
  }

  void bracketed_operator(std::string& brackets) {
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view two : kTwo) {
      if (!at(pos_, two)) continue;
      push(Type::kOperator, std::string(two), pos_);
      pos_ += 2;
      return;
    }
    const char c = source_[pos_];
    constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    if (kOne.find(c) == std::string_view::npos) {
      fail_at(pos_, fmt::format("unexpected char {}",
                                string_repr(source_.substr(pos_, utf8_at(source_, pos_).size))));
    }
    if (c == '(') brackets += ')';
    if (c == '[') brackets += ']';
    if (c == '{') brackets += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty()) fail_at(pos_, fmt::format("unexpected '{}'", c));
      if (brackets.back() != c)
        fail_at(pos_, fmt::format("unexpected '{}', expected '{}'", c, brackets.back()));
      brackets.pop_back();
    }
    push(Type::kOperator, std::string(1, c), pos_);
    ++pos_;
  }

  std::string source_;
  const Whitespace& whitespace_;
  size_t pos_ = 0;
  size_t counted_ = 0;
  Position at_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const Whitespace& whitespace) {
  return Lexer(source, whitespace).run();
}

}  // namespace quire::jinja
