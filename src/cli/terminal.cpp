#include "cli/terminal.h"

#include <cstdlib>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::cli {

bool is_terminal(std::FILE* stream) { return isatty(fileno(stream)) == 1; }

std::string paint(std::FILE* stream, std::string_view text, const fmt::text_style& style) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string_view(value == nullptr ? "" : value);
  };
  if (!is_terminal(stream) || !variable("NO_COLOR").empty() || variable("TERM") == "dumb") {
    return std::string(text);
  }
  return fmt::format(style, "{}", text);
}

std::string title(std::string_view text) {
  return paint(stdout, fmt::format("{:<14}", text), fmt::emphasis::bold);
}

void print_now(std::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw Error("standard output cannot be written");
}

std::string terminal_text(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const bool is_c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    if (is_c1) ++i;
    const bool is_control = is_c1 || byte == 0x7F || (byte < 0x20 && byte != '\n' && byte != '\t');
    out += is_control ? std::string("\uFFFD") : std::string(1, text[i]);
  }
  return out;
}

Progress::Progress(std::string label, uint64_t total) : label_(std::move(label)), total_(total) {
  advance(0);
}

Progress::~Progress() { hide(); }

void Progress::hide() {
  if (drawn_ < 0) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = -1;
}

void Progress::advance(uint64_t count) {
  done_ += count;
  if (total_ == 0 || !is_terminal(stderr)) return;
  const int percent = static_cast<int>(done_ * 100 / total_);
  if (percent == drawn_) return;
  drawn_ = percent;
  constexpr int kWidth = 30;
  const int filled = percent * kWidth / 100;
  fmt::print(stderr, "\r{} [{:#<{}}{: <{}}] {:3}%", label_, "", filled, "", kWidth - filled, percent);
  std::fflush(stderr);
}

}  // namespace quire::cli
