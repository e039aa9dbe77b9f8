#include "cli/terminal.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "record/display_text.h"

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

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string with_commas(uint64_t number) { return quire::record::with_commas(number); }

uint64_t parse_bytes(std::string_view text, std::string_view flag) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double factor = 1;
  if (unit.starts_with('K') || unit.starts_with('k')) factor = 0x1p10;
  if (unit.starts_with('M')) factor = 0x1p20;
  if (unit.starts_with('G')) factor = 0x1p30;
  if (unit.starts_with('T')) factor = 0x1p40;
  const std::string_view rest = factor > 1 ? unit.substr(1) : unit;
  const bool good_unit = rest.empty() || rest == "iB" || rest == "B";
  if (failed != std::errc() || !good_unit || !(value >= 0) || value * factor > 0x1p60) {
    throw Error(fmt::format("{}: '{}' is no amount of memory (write 512MiB, 4GiB, ...)", flag, text));
  }
  return static_cast<uint64_t>(value * factor);
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
