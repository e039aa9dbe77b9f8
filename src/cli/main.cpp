#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/command_line.h"
#include "cli/process.h"
#include "grammar/compiler.h"

int main(int argc, char** argv) {
  quire::cli::reserve_standard_files();
  quire::cli::handle_file_signals();
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) args.emplace_back("--help");
  if (args.size() == 1 && args[0] == quire::cli::kCompileGrammars) return quire::grammar::compile_trials();
  const quire::cli::CommandLine line = quire::cli::parse_command_line(std::move(args));
  if (!line.error.empty()) {
    quire::cli::complain(line.error);
    return 2;
  }
  try {
    int status = argc == 1 ? 2 : 0;
    if (line.run) {
      status = line.run();
    } else {
      fmt::print("{}", line.help);
    }
    quire::cli::finish_output();
    return status;
  } catch (const std::exception& error) {
    // The exception thrown there would not name the file.
    const bool no_output = std::ferror(stdout) != 0;
    const std::string said = no_output ? "standard output cannot be written" : quire::cli::describe(error);
    quire::cli::complain(said);
    return quire::cli::exit_status_of(said);
  }
}
