#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// How values look as text: str(), repr(), json.dumps(), HTML escaping.
namespace quire::jinja {
namespace {

void append_hex(std::string& out, uint32_t value, int digits) {
  while (digits-- > 0) out += "0123456789abcdef"[value >> (4 * digits) & 0xF];
}

/// "\\xe9", "\\u20ac", "\\U0001f600"
void append_escape(std::string& out, char32_t code) {
  out += code < 0x100 ? "\\x" : code < 0x10000 ? "\\u" : "\\U";
  append_hex(out, code, code < 0x100 ? 2 : code < 0x10000 ? 4 : 8);
}

void append_items(Sandbox& sandbox, std::string& out, std::span<const Value> items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out += ", ";
    first = false;
    append_repr(sandbox, out, item);
  }
}

void append_dict(Sandbox& sandbox, std::string& out, const Dict& dict) {
  out += '{';
  bool first = true;
  for (const Entry& entry : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    append_repr(sandbox, out, entry.key);
    out += ": ";
    append_repr(sandbox, out, entry.value);
  }
  out += '}';
}

void append_view(Sandbox& sandbox, std::string& out, const Value& value) {
  out += type_name(value);
  out += '(';
  append_repr(sandbox, out, new_list(sandbox, collect(sandbox, value)));
  out += ')';
}

void append_range(std::string& out, const Range& range) {
  out += fmt::format("range({}, {}", range.start, range.stop);
  if (range.step != 1) out += fmt::format(", {}", range.step);
  out += ')';
}

class JsonWriter {
 public:
  JsonWriter(Sandbox& sandbox, const JsonStyle& style) : sandbox_(sandbox), style_(style) {}

  void write(const Value& value, size_t depth) {
    sandbox_.step(2);
    const Sandbox::Level level(sandbox_);
    sandbox_.limit_string(out_.size());
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return;
      case Kind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        return;
      case Kind::kInt:
        out_ += int_text(value.as_int());
        return;
      case Kind::kFloat:
        out_ += number(value.as_float());
        return;
      case Kind::kString:
        string(value.as_string());
        return;
      case Kind::kList:
      case Kind::kTuple:
        list(value.items(), depth);
        return;
      case Kind::kDict:
        dict(value.as<Dict>(), depth);
        return;
      default:
        fail(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_repr(value);
  }

  void line(size_t depth) {
    if (!style_.indent) return;
    const uint64_t width = depth * style_.indent->size();
    sandbox_.limit_string(out_.size() + width);
    sandbox_.work(width);
    out_ += '\n';
    for (size_t i = 0; i < depth; ++i) out_ += *style_.indent;
  }

  void list(std::span<const Value> items, size_t depth) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    bool first = true;
    for (const Value& item : items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      line(depth + 1);
      write(item, depth + 1);
    }
    line(depth);
    out_ += ']';
  }

  void dict(const Dict& dict, size_t depth) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    std::vector<Entry> entries(dict.entries().begin(), dict.entries().end());
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const Entry& a, const Entry& b) { return less(sandbox_, a.key, b.key); });
    }
    out_ += '{';
    bool first = true;
    for (const Entry& entry : entries) {
      if (!first) out_ += style_.item_separator;
      first = false;
      line(depth + 1);
      key(entry.key);
      out_ += style_.key_separator;
      write(entry.value, depth + 1);
    }
    line(depth);
    out_ += '}';
  }

  void key(const Value& value) {
    switch (value.kind()) {
      case Kind::kString:
        string(value.as_string());
        return;
      case Kind::kNone:
        out_ += "\"null\"";
        return;
      case Kind::kBool:
        out_ += value.as_bool() ? "\"true\"" : "\"false\"";
        return;
      case Kind::kInt:
        out_ += '"' + int_text(value.as_int()) + '"';
        return;
      case Kind::kFloat:
        out_ += '"' + number(value.as_float()) + '"';
        return;
      default:
        fail(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(value)));
    }
  }

  void string(std::string_view text) {
    sandbox_.limit_string(text.size());
    sandbox_.char_work(text.size());
    out_ += '"';
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = utf8_at(text, i);
      switch (c.code) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\b':
          out_ += "\\b";
          break;
        case '\f':
          out_ += "\\f";
          break;
        default:
          if (c.code < 0x20 || (style_.ensure_ascii && c.code > 0x7E)) {
            unicode_escape(c.code);
          } else {
            out_ += text.substr(i, c.size);
          }
      }
      i += c.size;
    }
    out_ += '"';
  }

  void unicode_escape(char32_t code) {
    const auto unit = [&](uint32_t value) { append_hex(out_ += "\\u", value, 4); };
    if (code == 0x7F) {
      out_ += '\x7F';
    } else if (code < 0x10000) {
      unit(code);
    } else {
      unit(0xD800 + ((code - 0x10000) >> 10));
      unit(0xDC00 + ((code - 0x10000) & 0x3FF));
    }
  }

  Sandbox& sandbox_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string int_text(Int value) { return fmt::format("{}", value); }

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);
  // Python writes an exponent below 1e-4 and from 1e16 on.
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent >= -4 && exponent < 16) {
    const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
    std::string out(buffer, fixed);
    if (out.find('.') == std::string::npos) out += ".0";
    return out;
  }
  return fmt::format("{}e{}{:02}", text.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
}

std::string string_repr(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (c.code == static_cast<char32_t>(quote) || c.code == '\\') {
      out += '\\';
      out += static_cast<char>(c.code);
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (is_printable(c.code)) {
      out += text.substr(i, c.size);
    } else {
      append_escape(out, c.code);
    }
    i += c.size;
  }
  return out += quote;
}

std::string ascii_escaped(std::string_view repr) {
  std::string out;
  for (size_t i = 0; i < repr.size();) {
    const Utf8Char c = utf8_at(repr, i);
    if (c.code < 0x80) {
      out += static_cast<char>(c.code);
    } else {
      append_escape(out, c.code);
    }
    i += c.size;
  }
  return out;
}

void append_str(Sandbox& sandbox, std::string& out, const Value& value) {
  if (value.is_string()) {
    sandbox.limit_string(out.size() + value.as_string().size());
    sandbox.work(value.as_string().size());
    out += value.as_string();
  } else if (!value.is_undefined()) {
    append_repr(sandbox, out, value);
  }
}

void append_repr(Sandbox& sandbox, std::string& out, const Value& value) {
  sandbox.step();
  const Sandbox::Level level(sandbox);
  sandbox.limit_string(out.size());
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      return;
    case Kind::kInt:
      out += int_text(value.as_int());
      return;
    case Kind::kFloat:
      out += float_repr(value.as_float());
      return;
    case Kind::kString:
      sandbox.limit_string(2 * value.as_string().size());
      sandbox.char_work(value.as_string().size());
      if (value.is_markup()) out += "Markup(";
      out += string_repr(value.as_string());
      if (value.is_markup()) out += ')';
      return;
    case Kind::kList:
      out += '[';
      append_items(sandbox, out, value.items());
      out += ']';
      return;
    case Kind::kTuple:
      out += '(';
      append_items(sandbox, out, value.items());
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::kDict:
      append_dict(sandbox, out, value.as<Dict>());
      return;
    case Kind::kRange:
      append_range(out, value.as<Range>());
      return;
    case Kind::kView:
      append_view(sandbox, out, value);
      return;
    case Kind::kNamespace:
      out += "<Namespace ";
      append_dict(sandbox, out, value.as<Dict>());
      out += '>';
      return;
    case Kind::kBlocks:
      out += "<TemplateReference None>";
      return;
    case Kind::kMacro:
      out += fmt::format("<Macro {}>", macro_name_repr(value));
      return;
    case Kind::kFunction:
      out += fmt::format("<function {}>", value.as<Function>().name);
      return;
    case Kind::kLoop:
      append_loop(sandbox, out, value.as<Loop>());
      return;
    default:
      out += fmt::format("<{} object>", type_name(value));
      return;
  }
}

std::string_view to_str(Sandbox& sandbox, const Value& value) {
  if (value.is_string()) return value.as_string();
  std::string out;
  append_str(sandbox, out, value);
  return sandbox.copy(out);
}

std::string to_json(Sandbox& sandbox, const Value& value, const JsonStyle& style) {
  JsonWriter writer(sandbox, style);
  writer.write(value, 0);
  return writer.take();
}

Value escape(Sandbox& sandbox, const Value& value) {
  if (value.is_markup()) return value;
  const std::string_view text = to_str(sandbox, value);
  sandbox.limit_string(text.size());
  sandbox.char_work(text.size());
  if (text.find_first_of("&<>'\"") == std::string_view::npos) return Value::string(text, true);
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return Value::string(sandbox.copy(out), true);
}

}  // namespace quire::jinja
