#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

// What a person reads who wrote a command line that cannot be: one line that says what is wrong and what to
// write instead. None of them begins with "quire:", which who prints them adds.
namespace quire::cli {

/// `app`: the program's, after its parse threw an exception that says `why`. What the command does not know
/// comes first, since the rest may follow from it.
std::string usage_error(const CLI::App& app, const std::string& why);

/// What is wrong with `args`, the words behind "quire help": names of a command and its subcommand, or "help"
/// alone, are all that it takes. Empty if nothing is.
std::string help_error(const CLI::App& app, const std::vector<std::string>& args);

/// Of a first argument that names no command.
std::string unknown_command(const CLI::App& app, const std::string& name);

/// What a user wrote as an error quotes it: its first 60 bytes, without what would steer a terminal.
std::string shortened(std::string_view text);

/// How many letters must be inserted, removed, replaced or swapped with their neighbour to get from one to
/// the other (optimal string alignment).
size_t edit_distance(std::string_view from, std::string_view to);

}  // namespace quire::cli
