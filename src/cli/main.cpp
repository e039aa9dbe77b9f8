#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/color.h>

#include "base/error.h"
#include "cli/command_line.h"
#include "cli/process.h"
#include "cli/terminal.h"

namespace {

void complain(std::string_view what) {
  using quire::cli::paint;
  fmt::print(stderr, "{} {}\n", paint(stderr, "quire:", fmt::fg(fmt::terminal_color::red)), what);
}

}  // namespace

int main(int argc, char** argv) {
  quire::cli::handle_file_signals();
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) args.emplace_back("--help");
  const quire::cli::CommandLine line = quire::cli::parse_command_line(std::move(args));
  if (!line.error.empty()) {
    complain(line.error);
    return 2;
  }
  try {
    if (line.run) return line.run();
    fmt::print("{}", line.help);
    if (std::fflush(stdout) != 0) throw quire::Error("standard output cannot be written");
    return argc == 1 ? 2 : 0;
  } catch (const std::exception& error) {
    const std::string said = quire::cli::describe(error);
    complain(said);
    return quire::cli::exit_status_of(said);
  }
}
