#include <algorithm>
#include <set>
#include <utf8proc.h>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// The filter urlize: links around what jinja2.utils takes for addresses. Its patterns are matched by hand,
// as each bounds itself.
namespace quire::jinja {
namespace {

bool is_decimal_digit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

/// Lower case as far as Python's patterns that ignore case take it for ASCII.
char32_t folded(char32_t c) {
  if (c >= 'A' && c <= 'Z') return c + 32;
  if (c == 0x130 || c == 0x131) return 'i';
  if (c == 0x17F) return 's';
  return c == 0x212A ? U'k' : c;
}
bool is_small_letter(char32_t c) { return folded(c) >= 'a' && folded(c) <= 'z'; }
bool is_hex_digit(char32_t c) { return is_decimal_digit(c) || (folded(c) >= 'a' && folded(c) <= 'f'); }

std::u32string characters(std::string_view text) {
  std::u32string out;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    out += c.code;
    i += c.size;
  }
  return out;
}

template <class Test>
bool all_of(std::u32string_view text, Test&& test) {
  return std::all_of(text.begin(), text.end(), test);
}

bool starts_folded(std::u32string_view text, std::u32string_view with) {
  return text.size() >= with.size() && std::equal(with.begin(), with.end(), text.begin(),
                                                  [](char32_t a, char32_t b) { return a == folded(b); });
}
bool equals_folded(std::u32string_view text, std::u32string_view other) {
  return text.size() == other.size() && starts_folded(text, other);
}

/// An optional port, an optional path, and the end.
bool is_url_end(std::u32string_view text) {
  if (text.starts_with(U':')) {
    size_t digits = 1;
    while (digits < text.size() && digits <= 5 && is_decimal_digit(text[digits])) ++digits;
    if (digits == 1) return false;
    text.remove_prefix(digits);
  }
  return text.empty() || text[0] == '/' || text[0] == '?' || text[0] == '#';
}

/// LABEL. (any number of times) and a top-level domain of letters, or an international one.
bool is_host(const std::vector<std::u32string_view>& labels) {
  const std::u32string_view top = labels.back();
  if (std::any_of(labels.begin(), labels.end(), [](std::u32string_view label) { return label.empty(); })) {
    return false;
  }
  if (all_of(top, is_small_letter)) return top.size() >= 2 && top.size() <= 63;
  return starts_folded(top, U"xn--") && top.size() >= 6 && top.size() <= 63 &&
         all_of(top.substr(4), [](char32_t c) { return c == '%' || is_word_char(c); });
}

bool is_bare_host(const std::vector<std::u32string_view>& labels) {
  if (labels.size() < 2) return false;
  for (size_t i = 0; i + 1 < labels.size(); ++i) {
    if (labels[i].size() < 2 || labels[i].size() > 63) return false;
  }
  constexpr std::u32string_view kTops[] = {U"com", U"net", U"int", U"edu", U"gov", U"org", U"info", U"mil"};
  return std::any_of(std::begin(kTops), std::end(kTops),
                     [&](std::u32string_view top) { return equals_folded(labels.back(), top); });
}

bool is_ipv4(const std::vector<std::u32string_view>& labels) {
  return labels.size() == 4 && std::all_of(labels.begin(), labels.end(), [](std::u32string_view label) {
           return !label.empty() && label.size() <= 3 && all_of(label, is_decimal_digit);
         });
}

/// What stands in brackets: two groups with a colon each, and one to six more, whose colons may lack.
bool is_ipv6(std::u32string_view text) {
  for (int group = 0; group < 8; ++group) {
    size_t digits = 0;
    while (digits < text.size() && digits < 4 && is_hex_digit(text[digits])) ++digits;
    text.remove_prefix(digits);
    if (text.starts_with(U':')) {
      text.remove_prefix(1);
    } else if (group < 2) {
      return false;
    }
    if (group >= 2 && text.empty()) return true;
  }
  return false;
}

bool is_url(std::u32string_view text) {
  size_t scheme = 0;
  for (const std::u32string_view each : {U"http://", U"https://"}) {
    if (starts_folded(text, each)) scheme = each.size();
  }
  const bool www = scheme == 0 && starts_folded(text, U"www.");
  const std::u32string_view rest = text.substr(scheme);
  if (scheme > 0 && rest.starts_with(U'[')) {
    const size_t close = rest.find(U']');
    return close != rest.npos && is_ipv6(rest.substr(1, close - 1)) && is_url_end(rest.substr(close + 1));
  }
  // No character of a host can stand behind one, so the host is the longest there is.
  const auto host_end = std::find_if(rest.begin(), rest.end(), [](char32_t c) {
    return c != '.' && c != '%' && c != '-' && !is_word_char(c);
  });
  const std::u32string_view host = rest.substr(0, static_cast<size_t>(host_end - rest.begin()));
  if (!is_url_end(rest.substr(host.size()))) return false;
  std::vector<std::u32string_view> labels;
  for (size_t begin = 0; begin <= host.size();) {
    const size_t dot = std::min(host.find(U'.', begin), host.size());
    labels.push_back(host.substr(begin, dot - begin));
    begin = dot + 1;
  }
  if (scheme > 0) return is_host(labels) || is_ipv4(labels);
  if (is_bare_host(labels)) return true;
  if (!www) return false;
  labels.erase(labels.begin());
  return is_host(labels);
}

bool is_email(std::u32string_view text) {
  const size_t sign = text.rfind(U'@');
  if (sign == text.npos || sign == 0) return false;
  const std::u32string_view domain = text.substr(sign + 1);
  const size_t dot = domain.rfind(U'.');
  if (dot == domain.npos || dot == 0 || dot + 1 == domain.size() || !is_word_char(domain[0])) return false;
  return all_of(domain.substr(dot + 1), is_word_char) &&
         all_of(domain.substr(0, dot), [](char32_t c) { return c == '.' || c == '-' || is_word_char(c); });
}

bool is_scheme(std::string_view text) {
  const std::u32string scheme = characters(text);
  const size_t colon = scheme.find(U':');
  if (colon == scheme.npos || colon < 2) return false;
  const std::u32string_view end = std::u32string_view(scheme).substr(colon + 1);
  return (end.empty() || end == U"/" || end == U"//") &&
         all_of(std::u32string_view(scheme).substr(0, colon),
                [](char32_t c) { return c == '.' || c == '+' || c == '-' || is_word_char(c); });
}

size_t count_of(std::string_view text, std::string_view what) {
  size_t count = 0;
  for (size_t at = find_text(text, what); at != text.npos; at = find_text(text, what, at + what.size())) {
    ++count;
  }
  return count;
}

struct LinkStyle {
  std::optional<int64_t> limit;  // of the characters shown
  std::string attributes;
  std::vector<std::string_view> schemes;
};

std::string shown(std::string_view url, const std::optional<int64_t>& limit) {
  const auto size = static_cast<int64_t>(char_count(url));
  if (!limit || size <= *limit) return std::string(url);
  const int64_t kept = *limit < 0 ? std::max<int64_t>(size + *limit, 0) : *limit;
  return fmt::format("{}...", substring(url, 0, static_cast<size_t>(kept)));
}

/// The link for `word`, or the word itself.
std::string linked(std::string_view word, const LinkStyle& style) {
  const std::u32string chars = characters(word);
  if (is_url(chars)) {
    const bool whole = word.starts_with("https://") || word.starts_with("http://");
    return fmt::format("<a href=\"{}{}\"{}>{}</a>", whole ? "" : "https://", word, style.attributes,
                       shown(word, style.limit));
  }
  constexpr std::string_view kMail = "mailto:";
  if (word.starts_with(kMail) && is_email(std::u32string_view(chars).substr(kMail.size()))) {
    return fmt::format("<a href=\"{}\">{}</a>", word, word.substr(kMail.size()));
  }
  if (!word.starts_with("www.") && !word.starts_with('@') && word.find(':') == word.npos && is_email(chars)) {
    return fmt::format("<a href=\"mailto:{}\">{}</a>", word, word);
  }
  for (const std::string_view scheme : style.schemes) {
    if (word != scheme && word.starts_with(scheme)) {
      return fmt::format("<a href=\"{}\"{}>{}</a>", word, style.attributes, word);
    }
  }
  return std::string(word);
}

/// A word without the brackets and marks around it, which come back around the link.
std::string linked_word(std::string_view word, const LinkStyle& style) {
  size_t head = 0;
  while (head < word.size()) {
    const size_t size = word[head] == '(' || word[head] == '<'  ? 1
                        : word.substr(head).starts_with("&lt;") ? 4
                                                                : 0;
    if (size == 0) break;
    head += size;
  }
  size_t end = word.size();
  while (end > head) {
    const std::string_view before = word.substr(head, end - head);
    const size_t size = before.ends_with("&gt;")                                      ? 4
                        : std::string_view(")>.,").find(before.back()) != before.npos ? 1
                                                                                      : 0;
    if (size == 0) break;
    end -= size;
  }
  // A closing bracket whose opening one is within belongs to the address.
  constexpr std::pair<std::string_view, std::string_view> kBrackets[] = {
      {"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
  for (const auto& [open, close] : kBrackets) {
    const std::string_view middle = word.substr(head, end - head);
    const size_t opened = count_of(middle, open);
    if (opened <= count_of(middle, close)) continue;
    for (size_t i = 0; i < opened; ++i) {
      const size_t at = find_text(word, close, end);
      if (at == word.npos) break;
      end = at + close.size();
    }
  }
  return fmt::format("{}{}{}", word.substr(0, head), linked(word.substr(head, end - head), style),
                     word.substr(end));
}

std::string link_attributes(Sandbox& sandbox, const Bound& bound) {
  std::set<std::string, std::less<>> parts = {"noopener"};
  if (bound.flag(1, false)) parts.insert("nofollow");
  if (bound.is_given(3) && truthy(bound[3])) {
    const std::string_view rel = bound.string(3);
    sandbox.char_work(4 * rel.size());
    std::string part;
    const auto end_part = [&] {
      if (!part.empty()) parts.insert(std::exchange(part, {}));
    };
    for (size_t i = 0; i < rel.size();) {
      const Utf8Char c = utf8_at(rel, i);
      if (is_python_space(c.code)) {
        end_part();
      } else {
        part += rel.substr(i, c.size);
      }
      i += c.size;
    }
    end_part();
  }
  std::string rel;
  for (const std::string& part : parts) {
    if (!rel.empty()) rel += ' ';
    rel += part;
  }
  std::string out = fmt::format(" rel=\"{}\"", escape(sandbox, Value::string(rel)).as_string());
  if (bound.is_given(2) && truthy(bound[2])) {
    out += fmt::format(" target=\"{}\"", escape(sandbox, bound[2]).as_string());
  }
  return out;
}

}  // namespace

Value filter_urlize(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("urlize", args, {"trim_url_limit", "nofollow", "target", "rel", "extra_schemes"});
  Sandbox& sandbox = interpreter.sandbox();
  LinkStyle style;
  if (bound.is_given(0)) style.limit = bound.integer(0, 0);
  style.attributes = link_attributes(sandbox, bound);
  if (bound.is_given(4)) {
    for (const Value& scheme : collect(sandbox, bound[4])) {
      if (!scheme.is_string()) fail(fmt::format("urlize: a scheme is a string, not {}", type_name(scheme)));
      sandbox.char_work(4 * scheme.as_string().size());
      if (!is_scheme(scheme.as_string())) {
        fail(fmt::format("{} is not a valid URI scheme prefix.", string_repr(scheme.as_string())));
      }
      style.schemes.push_back(scheme.as_string());
    }
  }
  const std::string_view text = escape(sandbox, self).as_string();
  std::string out;
  const auto put = [&](std::string_view word) {
    sandbox.step(4 + style.schemes.size());
    sandbox.char_work(8 * word.size());
    sandbox.limit_string(out.size() + 2 * (word.size() + style.attributes.size()));
    sandbox.work(style.attributes.size());
    out += linked_word(word, style);
  };
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (is_python_space(c.code)) {
      if (begin < i) put(text.substr(begin, i - begin));
      out += text.substr(i, c.size);
      begin = i + c.size;
    }
    i += c.size;
  }
  if (begin < text.size()) put(text.substr(begin));
  sandbox.need_string(out.size());
  return Value::string(sandbox.copy(out), interpreter.autoescape());
}

}  // namespace quire::jinja
