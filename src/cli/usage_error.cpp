#include "cli/usage_error.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/utf8.h"
#include "cli/foreign_names.h"
#include "cli/number_range.h"
#include "record/display_text.h"

namespace quire::cli {
namespace {

/// As shortened(), of a sentence that quotes it somewhere; paths stay whole.
std::string without_middle(std::string_view text) {
  constexpr size_t kMost = 1000;
  constexpr size_t kEnds = 120;
  if (text.size() <= kMost) return record::printable(text);
  size_t end = text.size() - kEnds;
  while (end < text.size() && continues_utf8(text[end])) ++end;
  return fmt::format("{}...{}", record::printable(utf8_prefix(text, kEnds)),
                     record::printable(text.substr(end)));
}

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
    if (name.size() >= each.size() + least) continue;  // so long a name costs time
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
  if (command.get_parent() == nullptr)
    return "flags come after the command: quire COMMAND " + shortened(flag);
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
      return fmt::format("{}there is no flag '{}'; {}", head, shortened(flag),
                         flag_hint(app, *command, flag));
    }
    if (!command->get_subcommands({}).empty()) return unknown_command(*command, *at);
    return fmt::format("{}'{}' is one argument too many; {} --help says what it takes", head, shortened(*at),
                       full_name(*command));
  }
  return {};
}

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char each) {
    return each == '_' || std::isalnum(static_cast<unsigned char>(each)) != 0;
  });
}

bool is_count(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// A name as CLI11 gives it: of a flag or of an argument.
bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_of(" \t\n\v\f\r") == std::string_view::npos;
}

/// A flag of another program that is taken for one of ours with letters behind it: -ngl for -n with "gl".
std::string misread(const CLI::App& app, std::string_view why) {
  if (why.size() < 4 || why[0] != '-' || !is_word(why.substr(1, 1)) || why.substr(2, 2) != ": ") return {};
  const size_t open = why.find('\'');
  const size_t close = open == std::string_view::npos ? open : why.find('\'', open + 1);
  if (close == std::string_view::npos) return {};
  const std::string_view letters = why.substr(open + 1, close - open - 1);
  if (!is_word(letters)) return {};
  const std::string whole = fmt::format("{}{}", why.substr(0, 2), letters);
  const CLI::App& command = *given_commands(app).back();
  const auto has = [&](std::string_view ours) { return has_flag(command, ours); };
  const ForeignName* foreign = find_foreign_flag(whole, has);
  if (foreign == nullptr) return {};
  return fmt::format("{}there is no flag '{}'; {}", line_head(command), whole,
                     hint_of(*foreign, full_name(command)));
}

std::optional<double> number_of(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  return copy.empty() || end != copy.data() + copy.size() ? std::nullopt : std::optional(number);
}

/// What is before a mark in a text, and what is behind it.
using Parts = std::pair<std::string_view, std::string_view>;

Parts parts_at(std::string_view text, size_t at, std::string_view mark) {
  return {text.substr(0, at), text.substr(at + mark.size())};
}

/// Around the first `mark`; nullopt without one.
std::optional<Parts> split_first(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  return at == std::string_view::npos ? std::nullopt : std::optional(parts_at(text, at, mark));
}

std::optional<Parts> split_last(std::string_view text, std::string_view mark) {
  const size_t at = text.rfind(mark);
  return at == std::string_view::npos ? std::nullopt : std::optional(parts_at(text, at, mark));
}

/// Of a flag's "Value X not in range 1 to 2"; empty if `why` is none.
std::string out_of_range(const CLI::App& command, std::string_view flag, std::string_view why) {
  constexpr std::string_view kHead = "Value ";
  if (!why.starts_with(kHead)) return {};
  const auto parts = split_last(why.substr(kHead.size()), " not in range ");
  const auto limits = parts ? split_first(parts->second, " to ") : std::nullopt;
  const auto least = limits ? number_of(limits->first) : std::nullopt;
  const auto most = limits ? number_of(limits->second) : std::nullopt;
  if (!least || !most) return {};
  constexpr double kNoLimit = 1e9;
  const std::string value = shortened(parts->first);
  const auto number = number_of(parts->first);
  const std::string bounds = *most >= kNoLimit && (!number || *number <= *most)
                                 ? fmt::format("from {} up", decimal(*least))
                                 : fmt::format("from {} to {}", decimal(*least), decimal(*most));
  if (!number) return fmt::format("{}: '{}' is not a number {}", flag, value, bounds);
  const bool is_whole = *number == std::trunc(*number);
  const CLI::Option* option = find_option(command, flag);
  const bool takes_fractions =
      option != nullptr && option->get_type_name().find("FLOAT") != std::string::npos;
  return fmt::format("{}: {} is not a {} {}", flag, value,
                     is_whole || takes_fractions ? "number" : "whole number", bounds);
}

/// Of what a flag's check says after the flag's name; empty if `why` is none of CLI11's sentences.
std::string reworded_check(const CLI::App& command, std::string_view flag, std::string_view why) {
  if (const std::string line = out_of_range(command, flag, why); !line.empty()) return line;
  const auto member = split_last(why, " not in {");
  if (member && member->second.ends_with('}')) {
    std::string choices;
    for (const char each : member->second.substr(0, member->second.size() - 1)) {
      choices += each;
      if (each == ',') choices += ' ';
    }
    return fmt::format("{}: '{}' is not one of {}", flag, shortened(member->first), choices);
  }
  const auto missing = split_first(why, " required ");
  if (missing && is_count(missing->first) && missing->second.ends_with("missing")) {
    const CLI::Option* option = find_option(command, flag);
    const std::string type = option == nullptr ? "" : option->get_type_name();
    return fmt::format("{}: its value ({}) is missing", flag, type.substr(0, type.find(':')));
  }
  const auto repeated = split_first(why, " required but received ");
  if (repeated && repeated->first.starts_with("At Most ") && is_count(repeated->second)) {
    return fmt::format("{}: given {} times, once is enough", flag, repeated->second);
  }
  constexpr std::string_view kAtLeast = "At least ";
  if (repeated && repeated->first.starts_with(kAtLeast) && is_count(repeated->second)) {
    const CLI::Option* option = find_option(command, flag);
    return fmt::format("{}: takes {} values ({}), not {}", flag, repeated->first.substr(kAtLeast.size()),
                       option == nullptr ? "" : option->get_type_name(), repeated->second);
  }
  return {};
}

std::string not_converted(const CLI::App& command, std::string_view flag, std::string_view value) {
  const CLI::Option* option = find_option(command, flag);
  if (option != nullptr && option->get_items_expected_max() == 0) {
    return fmt::format("{}: takes no value ('{}')", flag, shortened(value));
  }
  return fmt::format("{}: '{}' is not a whole number from 0 up, or is too large", flag, shortened(value));
}

std::string is_missing(const CLI::App& command, std::string_view name) {
  std::vector<std::string> names;
  for (const CLI::App* each : command.get_subcommands({})) names.push_back(each->get_name());
  if (!names.empty()) {
    return fmt::format("{}one of {} is missing", line_head(command), fmt::join(names, ", "));
  }
  const CLI::Option* option = find_option(command, name);
  const std::string what = option == nullptr || is_flag(name) ? std::string(name) : option->get_type_name();
  return fmt::format("{}{} is missing; {} --help says more", line_head(command), what, full_name(command));
}

/// CLI11's sentences in our words. They hold what a user wrote, of any length: std::regex, which recurses
/// once a character, would overflow the stack of it.
std::string reworded(const CLI::App& command, std::string_view why) {
  constexpr std::string_view kConvert = "Could not convert: ";
  if (why.starts_with(kConvert)) {
    const auto parts = split_first(why.substr(kConvert.size()), " = ");
    if (parts && is_name(parts->first)) return not_converted(command, parts->first, parts->second);
  }
  if (const auto parts = split_first(why, ": "); parts && is_name(parts->first)) {
    const std::string line = reworded_check(command, parts->first, parts->second);
    if (!line.empty()) return line;
  }
  if (const auto parts = split_first(why, " excludes ");
      parts && is_name(parts->first) && is_name(parts->second))
    return fmt::format("{}: cannot be combined with {}", parts->first, parts->second);
  if (const auto parts = split_first(why, " requires ");
      parts && is_name(parts->first) && is_name(parts->second))
    return fmt::format("{}: changes nothing without {}", parts->first, parts->second);
  constexpr std::string_view kRequired = " is required";
  if (why.ends_with(kRequired)) return is_missing(command, why.substr(0, why.size() - kRequired.size()));
  return without_middle(why);
}

}  // namespace

std::string shortened(std::string_view text) {
  constexpr size_t kMost = 60;
  if (text.size() <= kMost) return record::printable(text);
  return record::printable(utf8_prefix(text, kMost)) + "...";
}

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

std::string help_error(const CLI::App& app, const std::vector<std::string>& args) {
  const CLI::App* command = &app;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (i + 1 == args.size() && (word == "--help" || word == "-h" || (i == 0 && word == "help"))) break;
    const auto below =
        command->get_subcommands([&](const CLI::App* each) { return each->get_name() == word; });
    if (!below.empty()) {
      command = below.front();
    } else if (is_flag(word) || command->get_subcommands({}).empty()) {
      return fmt::format("help: '{}' is one argument too many; {} --help says all", shortened(word),
                         full_name(*command));
    } else {
      return unknown_command(*command, word);
    }
  }
  return {};
}

bool is_command(const CLI::App& app, const std::string& name) {
  return !app.get_subcommands([&](const CLI::App* each) { return each->get_name() == name; }).empty();
}

std::string unknown_command(const CLI::App& app, const std::string& name) {
  const std::string parent = full_name(app);
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
  const bool is_first = app.get_parent() == nullptr;
  const std::string what = fmt::format("{}there is no command '{}'", line_head(app), shortened(name));
  if (const auto like = nearest(name, names))
    return fmt::format("{}; did you mean {} {}?", what, parent, *like);
  if (!is_first) return fmt::format("{}; it is one of {}", what, fmt::join(names, ", "));
  if (const ForeignName* foreign = find_foreign_command(name))
    return fmt::format("{}; {}", what, foreign->hint);
  std::error_code none;
  if (std::filesystem::exists(name, none)) {
    const std::string model = record::printable(name);
    return fmt::format("{}; of a model: quire run {}, quire serve {}, quire inspect {}", what, model, model,
                       model);
  }
  return what + "; quire --help lists them";
}

}  // namespace quire::cli
