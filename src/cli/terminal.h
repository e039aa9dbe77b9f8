#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/color.h>

// Output for users: colours and progress on a terminal, plain text in a pipe.
namespace quire::cli {

bool is_terminal(std::FILE* stream);

/// `text` in a colour if `stream` is a terminal that shows colours (NO_COLOR unset, TERM not "dumb"),
/// otherwise unchanged.
std::string paint(std::FILE* stream, std::string_view text, const fmt::text_style& style);

/// What stands before a line of standard output, in bold there: `text`, and spaces until it is as wide as all
/// titles.
std::string title(std::string_view text);

/// Writes to standard output at once. Throws Error on failure.
void print_now(std::string_view text);

/// `text`, which is UTF-8, without terminal control sequences: control characters other than ends of lines
/// and tabs become U+FFFD.
std::string terminal_text(std::string_view text);

/// A progress bar on standard error; draws nothing if that is not a terminal.
class Progress {
 public:
  Progress(std::string label, uint64_t total);
  ~Progress();
  void advance(uint64_t count = 1);
  /// Clears its line for other output; the next advance draws it again.
  void hide();

 private:
  std::string label_;
  uint64_t total_;
  uint64_t done_ = 0;
  int drawn_ = -1;  // per cent
};

}  // namespace quire::cli
