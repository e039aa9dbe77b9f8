#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"

namespace quire::cli {

/// The result of parsing a command line: one of the three is not empty.
struct CommandLine {
  Command run;
  std::string help;   // for standard output: a help text or the version
  std::string error;  // a line for standard error, without "quire: ": what is wrong, and a hint
};

/// Parses the arguments of the program, without its name. Never throws, whatever the arguments.
CommandLine parse_command_line(std::vector<std::string> args);

/// The exit status of a command that threw an Error: 2 for an error of the command line, whose message begins
/// with the flag's name; 1 for an error at run time.
int exit_status_of(std::string_view message);

}  // namespace quire::cli
