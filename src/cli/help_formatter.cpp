#include "cli/help_formatter.h"

#include <algorithm>
#include <regex>
#include <set>
#include <string_view>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/number_range.h"

namespace quire::cli {
namespace {

constexpr size_t kColumn = 38;  // where descriptions begin
constexpr size_t kHelpWidth = 100;

/// `name` and beside it `text`, in lines that end before kHelpWidth where a word allows it.
std::string beside(const std::string& name, std::string_view text) {
  std::string out = "  " + name;
  if (text.empty()) return out + "\n";
  size_t column = out.size();
  const auto new_line = [&] {
    out += "\n" + std::string(kColumn, ' ');
    column = kColumn;
  };
  if (column + 1 > kColumn) {
    new_line();
  } else {
    out.append(kColumn - column, ' ');
    column = kColumn;
  }
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    if (column > kColumn) {
      if (column + 1 + word.size() > kHelpWidth) {
        new_line();
      } else {
        out += ' ';
        ++column;
      }
    }
    out += word;
    column += word.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + "\n";
}

}  // namespace

std::string value_text(const std::string& type_name, const std::string& default_value) {
  static const std::regex kRange(R"((\S*?):(?:U?INT|FLOAT) in \[(-?[\d.e+-]+) - ([\d.e+-]+)\])");
  static const std::regex kChoice(R"([^\s:]*:(\{.*\}))");
  const std::string value = default_value.empty() ? "" : "=" + default_value;
  std::smatch found;
  if (std::regex_match(type_name, found, kRange)) {
    constexpr double kNoLimit = 1e9;
    const bool is_open = std::stod(found[3]) >= kNoLimit;
    const std::string least = decimal(std::stod(found[2]));
    const std::string bounds = is_open ? fmt::format("from {}", least)
                                       : fmt::format("{} to {}", least, decimal(std::stod(found[3])));
    return fmt::format("{}{} ({})", found[1].str(), value, bounds);
  }
  if (std::regex_match(type_name, found, kChoice)) return found[1].str() + value;
  return type_name + value;
}

namespace {

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

HelpFormatter::HelpFormatter() {
  column_width(kColumn);
  label("Positionals", "Arguments");
  label("SUBCOMMAND", "COMMAND");
  label("Subcommands", "Commands");
  label("REQUIRED", "(required)");
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  std::string out;
  if (option->get_type_size() != 0) {
    const std::string value = value_text(option->get_type_name(), option->get_default_str());
    if (!value.empty()) out += " " + value;
    if (option->get_expected_max() >= CLI::detail::expected_max_vector_size) out += " ...";
    if (option->get_required()) out += " " + get_label("REQUIRED");
  }
  const auto names = [&](const char* word, const auto& others) {
    constexpr size_t kMost = 2;  // further names are listed at their own description
    if (others.size() > kMost) return;
    std::set<std::string> list;
    for (const CLI::Option* other : others) list.insert(other->get_name());
    if (!list.empty()) out += fmt::format(" ({} {})", word, fmt::join(list, ", "));
  };
  names("with", option->get_needs());
  names("not with", option->get_excludes());
  return out;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = make_option_name(option, is_positional);
  // CLI11's value of a flag that turns something off: --no-x{false}.
  if (const size_t at = name.find("{false}"); at != std::string::npos) name.erase(at, 7);
  return beside(name + make_option_opts(option), make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return beside(command->get_display_name(true), command->get_description());
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace quire::cli
