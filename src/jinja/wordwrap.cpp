#include <algorithm>
#include <utf8proc.h>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// The filter wordwrap: Python's textwrap.wrap on each line.
namespace quire::jinja {
namespace {

bool is_blank(char32_t c) { return c == ' ' || (c >= 9 && c <= 13); }
bool is_letter(char32_t c) {
  return is_word_char(c) && utf8proc_category(static_cast<utf8proc_int32_t>(c)) != UTF8PROC_CATEGORY_ND;
}
bool is_word_or_mark(char32_t c) {
  return is_word_char(c) ||
         (c < 0x80 && std::string_view("!\"'&.,?").find(static_cast<char>(c)) != std::string_view::npos);
}

/// A stretch of characters that is broken only if it does not fit a line of its own.
struct Chunk {
  size_t begin;
  size_t end;
  size_t size() const { return end - begin; }
};

class Wrapper {
 public:
  Wrapper(Sandbox& sandbox, std::string_view line, size_t width, bool break_long, bool hyphens_split_long)
      : sandbox_(sandbox), width_(width), break_long_(break_long), hyphens_(hyphens_split_long) {
    for (size_t i = 0; i < line.size();) {
      const Utf8Char c = utf8_at(line, i);
      text_.push_back(c.code);
      i += c.size;
    }
  }

  template <class Visit>
  void run(bool split_at_hyphens, Visit&& visit) {
    split(split_at_hyphens);
    bool any = false;
    for (size_t next = 0; next < chunks_.size();) {
      sandbox_.step();
      if (any && is_space(chunks_[next])) ++next;
      // The chunks of a line are neighbours, so it is a stretch itself.
      if (next == chunks_.size()) break;
      Chunk line{chunks_[next].begin, chunks_[next].begin};
      size_t last = line.begin;  // where the line's last chunk begins
      while (next < chunks_.size() && line.size() + chunks_[next].size() <= width_) {
        last = chunks_[next].begin;
        line.end = chunks_[next++].end;
      }
      if (next < chunks_.size() && chunks_[next].size() > width_) {
        const size_t taken = part_of_long(chunks_[next], width_ - line.size(), line.size() == 0);
        // An empty part counts as the line's last chunk, so that blanks before it stay.
        if (taken > 0 || break_long_) last = line.end;
        line.end = chunks_[next].begin += taken;
        if (chunks_[next].size() == 0) ++next;
      }
      if (line.size() > 0 && is_space({last, line.end})) line.end = last;
      if (line.size() == 0) continue;
      any = true;
      visit(utf8(line));
    }
  }

 private:
  char32_t at(size_t i) const { return text_[i]; }
  bool is_letter_at(size_t i) const { return i < text_.size() && is_letter(at(i)); }

  bool is_space(Chunk chunk) const {
    return std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(chunk.begin),
                       text_.begin() + static_cast<std::ptrdiff_t>(chunk.end), is_python_space);
  }

  /// Behind two or more hyphens between `i` and a word; 0 if there are none.
  size_t dash_end(size_t i) const {
    if (i == 0 || !is_word_or_mark(at(i - 1))) return 0;
    size_t end = i;
    while (end < text_.size() && at(end) == '-') ++end;
    return end >= i + 2 && end < text_.size() && is_word_char(at(end)) ? end : 0;
  }

  /// Whether the hyphen at `i` stands in a word: behind two letters, or a letter and a hyphen and a letter.
  bool joins_word(size_t i) const {
    if (i < 2 || !is_letter(at(i - 1))) return false;
    if (!is_letter(at(i - 2)) && !(at(i - 2) == '-' && i >= 3 && is_letter(at(i - 3)))) return false;
    if (!is_letter_at(i + 1)) return false;
    return is_letter_at(i + 2) || (i + 2 < text_.size() && at(i + 2) == '-' && is_letter_at(i + 3));
  }

  /// Where the word that begins at `i` ends.
  size_t word_end(size_t i, bool split_at_hyphens) const {
    for (size_t end = i; end < text_.size(); ++end) {
      if (is_blank(at(end))) return end;
      if (!split_at_hyphens || end == i || at(end) != '-') continue;
      if (joins_word(end)) return end + 1;
      if (dash_end(end) != 0) return end;
    }
    return text_.size();
  }

  void split(bool split_at_hyphens) {
    for (size_t i = 0; i < text_.size();) {
      sandbox_.step();
      size_t end = i;
      while (end < text_.size() && is_blank(at(end))) ++end;
      if (end == i && split_at_hyphens && at(i) == '-') end = std::max(dash_end(i), i);
      if (end == i) end = word_end(i, split_at_hyphens);
      chunks_.push_back({i, end});
      i = end;
    }
  }

  /// How much of a chunk that is too long for any line goes onto this one.
  size_t part_of_long(Chunk chunk, size_t room, bool line_is_empty) const {
    if (!break_long_) return line_is_empty ? chunk.size() : 0;
    if (!hyphens_ || chunk.size() <= room) return room;
    // Behind the last hyphen that fits, if there is more than hyphens before it.
    for (size_t i = room; i > 1; --i) {
      if (at(chunk.begin + i - 1) != '-') continue;
      const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(chunk.begin);
      const bool only_hyphens =
          std::all_of(begin, begin + static_cast<std::ptrdiff_t>(i - 1), [](char32_t c) { return c == '-'; });
      return only_hyphens ? room : i;
    }
    return room;
  }

  std::string utf8(Chunk chunk) const {
    std::string out;
    for (size_t i = chunk.begin; i < chunk.end; ++i) append_utf8(out, at(i));
    return out;
  }

  Sandbox& sandbox_;
  size_t width_;
  bool break_long_;
  bool hyphens_;
  std::u32string text_;
  std::vector<Chunk> chunks_;
};

}  // namespace

Value filter_wordwrap(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("wordwrap", args, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  Sandbox& sandbox = interpreter.sandbox();
  if (!self.is_string()) fail_needs_text(self, "wordwrap");
  const std::string_view text = self.as_string();
  const int64_t width = text.empty() ? 79 : bound.integer(0, 79);  // Python looks at it only to wrap a line
  const std::string_view joint = bound.is_given(2) ? bound.string(2) : "\n";
  // textwrap splits at hyphens for True itself only, but breaks long words at them for whatever is true.
  const bool at_hyphens = !bound.has(3) || (bound[3].is(Kind::kBool) && bound[3].as_bool());
  std::string out;
  bool first = true;
  const auto put = [&](std::string_view line) {
    sandbox.need_string(out.size() + line.size() + joint.size());
    if (!first) out += joint;
    first = false;
    out += line;
  };
  split_lines(text, false, [&](std::string_view line) {
    if (width <= 0) fail(fmt::format("invalid width {} (must be > 0)", width));
    sandbox.step();
    sandbox.char_work(4 * line.size());
    Wrapper wrapper(sandbox, line, static_cast<size_t>(width), bound.flag(1, true), bound.flag(3, true));
    bool any = false;
    wrapper.run(at_hyphens, [&](std::string_view part) {
      any = true;
      put(part);
    });
    if (!any) put("");
  });
  return Value::string(sandbox.copy(out));
}

}  // namespace quire::jinja
