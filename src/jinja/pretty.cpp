#include <algorithm>

#include "base/utf8.h"
#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// The filter pprint: Python's pprint.pformat, of 80 columns.
namespace quire::jinja {
namespace {

constexpr int64_t kWidth = 80;

/// The order of the types that can be keys: values that do not compare are sorted by their type's name.
int rank_of(const Value& key) {
  if (key.is_none()) return 0;
  if (key.is_number()) return 1;
  if (key.is_string()) return 2;
  return key.is(Kind::kTuple) ? 3 : 4;
}

bool key_less(Sandbox& sandbox, const Value& left, const Value& right) {
  const int rank = rank_of(left);
  if (rank != rank_of(right)) return rank < rank_of(right);
  if (rank == 1 || rank == 2) return less(sandbox, left, right);
  return false;
}

class PrettyPrinter {
 public:
  explicit PrettyPrinter(Sandbox& sandbox) : sandbox_(sandbox) {}

  /// From column `indent`, with `allowance` columns kept for what closes the values around it.
  void format(const Value& value, int64_t indent, int64_t allowance, uint32_t level) {
    sandbox_.step();
    const Sandbox::Level nesting(sandbox_);
    const std::string rep = repr(value);
    sandbox_.char_work(rep.size());
    const bool fits = static_cast<int64_t>(char_count(rep)) <= kWidth - indent - allowance;
    if (!fits && value.is(Kind::kDict)) {
      dict(value.as<Dict>(), indent, allowance, level);
    } else if (!fits && value.is_sequence() && !value.is_group()) {
      sequence(value, indent, allowance, level);
    } else if (!fits && value.is_string() && !value.is_markup() && !value.as_string().empty()) {
      string(value.as_string(), rep, indent, allowance, level == 0);
    } else {
      put(rep);
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void put(std::string_view text) {
    sandbox_.need_string(out_.size() + text.size());
    out_ += text;
  }
  void new_line(int64_t indent) {
    const auto width = static_cast<uint64_t>(indent);
    sandbox_.limit_string(out_.size() + width);
    sandbox_.work(width);
    out_ += '\n';
    out_.append(width, ' ');
  }

  std::vector<Entry> sorted(const Dict& dict) {
    std::vector<Entry> entries(dict.entries().begin(), dict.entries().end());
    sandbox_.step(entries.size());
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const Entry& a, const Entry& b) { return key_less(sandbox_, a.key, b.key); });
    return entries;
  }

  std::string repr(const Value& value) {
    std::string out;
    append(out, value);
    return out;
  }

  /// repr() with the keys of dicts in order.
  void append(std::string& out, const Value& value) {
    const bool is_sequence = value.is_sequence() && !value.is_group();
    if (!is_sequence && !value.is(Kind::kDict)) {
      append_repr(sandbox_, out, value);
      return;
    }
    sandbox_.step();
    const Sandbox::Level nesting(sandbox_);
    sandbox_.limit_string(out.size());
    bool first = true;
    const auto separate = [&] {
      if (!first) out += ", ";
      first = false;
    };
    if (is_sequence) {
      const bool is_list = value.is(Kind::kList);
      out += is_list ? '[' : '(';
      for (const Value& item : value.items()) {
        separate();
        append(out, item);
      }
      out += is_list ? "]" : value.items().size() == 1 ? ",)" : ")";
      return;
    }
    out += '{';
    for (const Entry& entry : sorted(value.as<Dict>())) {
      separate();
      append(out, entry.key);
      out += ": ";
      append(out, entry.value);
    }
    out += '}';
  }

  void dict(const Dict& dict, int64_t indent, int64_t allowance, uint32_t level) {
    put("{");
    const std::vector<Entry> entries = sorted(dict);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) {
        put(",");
        new_line(indent + 1);
      }
      const std::string key = repr(entries[i].key);
      put(key);
      put(": ");
      const bool last = i + 1 == entries.size();
      format(entries[i].value, indent + 1 + static_cast<int64_t>(char_count(key)) + 2,
             last ? allowance + 1 : 1, level + 1);
    }
    put("}");
  }

  void sequence(const Value& value, int64_t indent, int64_t allowance, uint32_t level) {
    const bool is_list = value.is(Kind::kList);
    const std::span<const Value> items = value.items();
    const std::string_view close = is_list ? "]" : items.size() == 1 ? ",)" : ")";
    put(is_list ? "[" : "(");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) {
        put(",");
        new_line(indent + 1);
      }
      const bool last = i + 1 == items.size();
      format(items[i], indent + 1, last ? allowance + static_cast<int64_t>(close.size()) : 1, level + 1);
    }
    put(close);
  }

  /// A long string as literals of whole lines, and of words where a line is too long by itself.
  void string(std::string_view text, std::string_view rep, int64_t indent, int64_t allowance,
              bool outermost) {
    if (outermost) {
      ++indent;
      ++allowance;
    }
    std::vector<std::string_view> lines;
    split_lines(text, true, [&](std::string_view line) {
      sandbox_.step();
      lines.push_back(line);
    });
    std::vector<std::string> chunks;
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool last = i + 1 == lines.size();
      const int64_t width = kWidth - indent;
      std::string line = literal(lines[i]);
      if (static_cast<int64_t>(char_count(line)) <= (last ? width - allowance : width)) {
        chunks.push_back(std::move(line));
      } else {
        words(lines[i], width, last ? allowance : 0, chunks);
      }
    }
    if (chunks.size() == 1) {
      put(rep);
      return;
    }
    if (outermost) put("(");
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) new_line(indent);
      put(chunks[i]);
    }
    if (outermost) put(")");
  }

  /// The literals of one line, its words (with the blanks behind them) kept whole.
  void words(std::string_view line, int64_t width, int64_t allowance, std::vector<std::string>& chunks) {
    size_t begin = 0;  // of what the next literal has so far
    size_t end = 0;
    while (end < line.size()) {
      const size_t next = word_end(line, end);
      if (next == line.size()) width -= allowance;
      if (begin<end&& static_cast<int64_t>(char_count(literal(line.substr(begin, next - begin))))> width) {
        chunks.push_back(literal(line.substr(begin, end - begin)));
        begin = end;
      }
      end = next;
    }
    if (begin < end) chunks.push_back(literal(line.substr(begin)));
  }

  static size_t word_end(std::string_view line, size_t at) {
    bool blank = false;
    while (at < line.size()) {
      const Utf8Char c = utf8_at(line, at);
      const bool is_blank = is_python_space(c.code);
      if (blank && !is_blank) break;
      blank = is_blank;
      at += c.size;
    }
    return at;
  }

  std::string literal(std::string_view text) {
    sandbox_.step();
    sandbox_.char_work(text.size());
    return string_repr(text);
  }

  Sandbox& sandbox_;
  std::string out_;
};

}  // namespace

Value filter_pprint(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("pprint", args, {});
  Sandbox& sandbox = interpreter.sandbox();
  PrettyPrinter printer(sandbox);
  printer.format(self, 0, 0, 0);
  return Value::string(sandbox.copy(printer.take()));
}

}  // namespace quire::jinja
