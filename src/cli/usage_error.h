#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

// The messages for an invalid command line: one line that says what is wrong and what to write instead. None
// begins with "quire:", which the caller adds.
namespace quire::cli {

/// `app`: the program's, after its parse threw an exception that says `why`. Unknown words are reported
/// first, since other errors may follow from them.
std::string usage_error(const CLI::App& app, const std::string& why);

/// What is wrong with `args`, the words after "quire help", which must be the name of a command, optionally
/// with a subcommand, or "help". Empty if they are right.
std::string help_error(const CLI::App& app, const std::vector<std::string>& args);

/// Whether the program has a command of that name.
bool is_command(const CLI::App& app, const std::string& name);

/// The message for a first argument that names no command.
std::string unknown_command(const CLI::App& app, const std::string& name);

/// A user's text for quoting in an error: its first 60 bytes, without terminal control sequences.
std::string shortened(std::string_view text);

/// The number of letters to insert, remove, replace or swap with a neighbour to turn one into the other
/// (optimal string alignment).
size_t edit_distance(std::string_view from, std::string_view to);

}  // namespace quire::cli
