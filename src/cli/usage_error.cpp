#include "cli/usage_error.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <optional>
#include <regex>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/foreign_names.h"
#include "record/display_text.h"

namespace quire::cli {
namespace {

/// The commands that were given, from the program's own down.
std::vector<const CLI::App*> given_commands(const CLI::App& app) {
  std::vector<const CLI::App*> path = {&app};
  while (!path.back()->get_subcommands().empty()) path.push_back(path.back()->get_subcommands().front());
  return path;
}

/// "quire bench serve".
std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

/// The same without the program's name, ": " behind it: what a line begins with. Empty of the program itself.
std::string line_head(const CLI::App& command) {
  const std::string name = full_name(command);
  const size_t space = name.find(' ');
  return space == std::string::npos ? "" : name.substr(space + 1) + ": ";
}

std::vector<const CLI::App*> all_commands(const CLI::App& app) {
  std::vector<const CLI::App*> out;
  for (const CLI::App* each : app.get_subcommands({})) {
    const auto below = all_commands(*each);
    if (below.empty()) out.push_back(each);
    out.insert(out.end(), below.begin(), below.end());
  }
  return out;
}

/// A flag with its dashes, or an argument without.
const CLI::Option* find_option(const CLI::App& command, std::string_view name) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->check_name(std::string(name)) && option->get_positional() == !name.starts_with('-')) {
      return option;
    }
  }
  return nullptr;
}

bool has_flag(const CLI::App& command, std::string_view name) {
  return find_option(command, name) != nullptr;
}

/// Far enough to be meant by it: the longer a name, the more mistakes.
size_t tolerance(std::string_view name) { return name.size() < 5 ? 1 : name.size() < 10 ? 2 : 3; }

/// The one of `names` that is most like `name`, if any is; a beginning of three letters is enough.
std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& names) {
  std::optional<std::string> best;
  size_t least = tolerance(name) + 1;
  for (const std::string& each : names) {
    if (const size_t distance = edit_distance(name, each); distance < least) {
      least = distance;
      best = each;
    }
  }
  if (best || name.size() < 3) return best;
  for (const std::string& each : names) {
    if (each.starts_with(name) && (!best || each.size() < best->size())) best = each;
  }
  return best;
}

std::string hint_of(const ForeignName& foreign, const std::string& command) {
  std::string hint(foreign.hint);
  if (const size_t at = hint.find("{}"); at != std::string::npos) hint.replace(at, 2, command);
  return hint;
}

/// What to write instead of a flag that the command has not, after a ';', or where to read.
std::string flag_hint(const CLI::App& app, const CLI::App& command, std::string flag) {
  std::replace(flag.begin(), flag.end(), '_', '-');
  const std::string name = full_name(command);
  if (flag.starts_with("--") && has_flag(command, flag)) return fmt::format("did you mean {}?", flag);
  const auto has = [&](std::string_view ours) { return has_flag(command, ours); };
  if (const ForeignName* foreign = find_foreign_flag(flag, has)) return hint_of(*foreign, name);
  if (command.get_parent() == nullptr) return "flags come after the command: quire COMMAND " + flag;
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& each : option->get_lnames()) names.push_back(each);
  }
  if (flag.starts_with("--")) {
    if (const auto like = nearest(flag.substr(2), names)) return fmt::format("did you mean --{}?", *like);
  }
  std::vector<std::string> others;
  for (const CLI::App* other : all_commands(app)) {
    if (has_flag(*other, flag)) others.push_back(full_name(*other));
  }
  constexpr size_t kMost = 3;
  if (!others.empty() && others.size() <= kMost) {
    return fmt::format("{} {} it", fmt::join(others, " and "), others.size() == 1 ? "has" : "have");
  }
  return name + " --help lists them";
}

bool is_flag(std::string_view arg) {
  return arg.size() > 1 && arg[0] == '-' &&
         (arg[1] == '-' || std::isalpha(static_cast<unsigned char>(arg[1])) != 0);
}

/// What of the command line no command takes, flags only or all else; empty if nothing.
std::string unexpected(const CLI::App& app, bool flags) {
  for (const CLI::App* command : given_commands(app)) {
    const std::vector<std::string> left = command->remaining();
    const auto at =
        std::find_if(left.begin(), left.end(), [&](const auto& arg) { return is_flag(arg) == flags; });
    if (at == left.end()) continue;
    const std::string head = line_head(*command);
    if (flags) {
      const std::string flag = at->substr(0, at->find('='));
      return fmt::format("{}there is no flag '{}'; {}", head, printable(flag),
                         flag_hint(app, *command, flag));
    }
    if (!command->get_subcommands({}).empty()) return unknown_command(*command, *at);
    return fmt::format("{}'{}' is one argument too many; {} --help says what it takes", head, printable(*at),
                       full_name(*command));
  }
  return {};
}

/// A flag of another program that is taken for one of ours with letters behind it: -ngl for -n with "gl".
std::string misread(const CLI::App& app, const std::string& why) {
  static const std::regex short_flag(R"(^(-\w): .*'(\w+)'.*)");
  std::smatch found;
  if (!std::regex_match(why, found, short_flag)) return {};
  const std::string whole = found[1].str() + found[2].str();
  const CLI::App& command = *given_commands(app).back();
  const auto has = [&](std::string_view ours) { return has_flag(command, ours); };
  const ForeignName* foreign = find_foreign_flag(whole, has);
  if (foreign == nullptr) return {};
  return fmt::format("{}there is no flag '{}'; {}", line_head(command), whole,
                     hint_of(*foreign, full_name(command)));
}

std::string out_of_range(const std::string& flag, const std::string& value, const std::string& least,
                         const std::string& most) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  const bool is_number = !value.empty() && *end == '\0';
  const bool is_whole = number == static_cast<double>(static_cast<int64_t>(number));
  constexpr double kNoLimit = 1e9;
  const double highest = std::stod(most);
  const std::string bounds = highest >= kNoLimit ? fmt::format("from {} up", std::stod(least))
                                                 : fmt::format("from {} to {}", std::stod(least), highest);
  if (!is_number) return fmt::format("{}: '{}' is no number {}", flag, printable(value), bounds);
  const char* kind = is_whole || most.find('.') != std::string::npos ? "number" : "whole number";
  return fmt::format("{}: {} is no {} {}", flag, value, kind, bounds);
}

/// CLI11's sentences in our words.
std::string reworded(const CLI::App& command, const std::string& why) {
  static const std::regex range(R"(^(\S+): Value ([^]*) not in range (\S+) to (\S+)$)");
  static const std::regex member(R"(^(\S+): ([^]*) not in \{(.*)\}$)");
  static const std::regex convert(R"(^Could not convert: (\S+) = ([^]*)$)");
  static const std::regex missing(R"(^(\S+): \d+ required .*missing$)");
  static const std::regex repeated(R"(^(\S+): At Most \d+ required but received (\d+)$)");
  static const std::regex excludes(R"(^(\S+) excludes (\S+)$)");
  static const std::regex needs(R"(^(\S+) requires (\S+)$)");
  static const std::regex required(R"(^(.+) is required$)");
  std::smatch found;
  if (std::regex_match(why, found, range)) return out_of_range(found[1], found[2], found[3], found[4]);
  if (std::regex_match(why, found, member)) {
    const std::string choices = std::regex_replace(found[3].str(), std::regex(","), ", ");
    return fmt::format("{}: '{}' is none of {}", found[1].str(), printable(found[2].str()), choices);
  }
  if (std::regex_match(why, found, convert)) {
    const CLI::Option* option = find_option(command, found[1].str());
    if (option != nullptr && option->get_items_expected_max() == 0) {
      return fmt::format("{}: takes no value ('{}')", found[1].str(), printable(found[2].str()));
    }
    return fmt::format("{}: '{}' is no whole number from 0 up, or too large", found[1].str(),
                       printable(found[2].str()));
  }
  if (std::regex_match(why, found, missing)) {
    const CLI::Option* option = find_option(command, found[1].str());
    const std::string type = option == nullptr ? "" : option->get_type_name();
    return fmt::format("{}: its value ({}) is missing", found[1].str(), type.substr(0, type.find(':')));
  }
  if (std::regex_match(why, found, repeated)) {
    return fmt::format("{}: given {} times, once is enough", found[1].str(), found[2].str());
  }
  if (std::regex_match(why, found, excludes)) {
    return fmt::format("{}: cannot be combined with {}", found[1].str(), found[2].str());
  }
  if (std::regex_match(why, found, needs)) {
    return fmt::format("{}: changes nothing without {}", found[1].str(), found[2].str());
  }
  if (std::regex_match(why, found, required)) {
    std::vector<std::string> names;
    for (const CLI::App* each : command.get_subcommands({})) names.push_back(each->get_name());
    const std::string name = full_name(command);
    if (!names.empty()) {
      return fmt::format("{}one of {} is missing", line_head(command), fmt::join(names, ", "));
    }
    const CLI::Option* option = find_option(command, found[1].str());
    const std::string what =
        option == nullptr || is_flag(found[1].str()) ? found[1].str() : option->get_type_name();
    return fmt::format("{}{} is missing; {} --help says more", line_head(command), what, name);
  }
  return why;
}

}  // namespace

size_t edit_distance(std::string_view from, std::string_view to) {
  // Rows of the table: the last but one, the last, and the one that is filled.
  std::vector<size_t> before(to.size() + 1);
  std::vector<size_t> last(to.size() + 1);
  std::vector<size_t> row(to.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool is_swap = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (is_swap) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[to.size()];
}

std::string usage_error(const CLI::App& app, const std::string& why) {
  const std::string line = reworded(*given_commands(app).back(), why);
  std::string what = misread(app, line);
  if (what.empty()) what = unexpected(app, true);
  // Where a value is missing, the rest was not read yet.
  if (what.empty() && !line.ends_with(") is missing")) what = unexpected(app, false);
  return what.empty() ? line : what;
}

std::string unexpected_arguments(const CLI::App& app) {
  const std::string what = unexpected(app, true);
  return what.empty() ? unexpected(app, false) : what;
}

std::string unknown_command(const CLI::App& app, const std::string& name) {
  const std::string parent = full_name(app);
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
  const bool is_first = app.get_parent() == nullptr;
  const std::string what = fmt::format("{}there is no command '{}'", line_head(app), printable(name));
  if (const auto like = nearest(name, names))
    return fmt::format("{}; did you mean {} {}?", what, parent, *like);
  if (!is_first) return fmt::format("{}; it is one of {}", what, fmt::join(names, ", "));
  if (const ForeignName* foreign = find_foreign_command(name))
    return fmt::format("{}; {}", what, foreign->hint);
  std::error_code none;
  if (std::filesystem::exists(name, none)) {
    return fmt::format("{}; of a model: quire run {}, quire serve {}, quire inspect {}", what, name, name,
                       name);
  }
  return what + "; quire --help lists them";
}

}  // namespace quire::cli
