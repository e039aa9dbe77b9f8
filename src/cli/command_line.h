#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"

namespace quire::cli {

/// What a command line asks for: one of the three is not empty.
struct CommandLine {
  Command run;
  std::string help;   // for standard output: a help text or the version
  std::string error;  // a line for standard error, without "quire: ": what is wrong, and what helps
};

/// Takes the arguments of the program apart, its own name left out. Never throws for what they are.
CommandLine parse_command_line(std::vector<std::string> args);

/// The exit status of a command that threw an Error: 2 for a fault of the command line, whose message begins
/// with the flag's name, 1 for what went wrong while it ran.
int exit_status_of(std::string_view message);

}  // namespace quire::cli
