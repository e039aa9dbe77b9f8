#include "cli/flags.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/help_formatter.h"
#include "cli/number_range.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

constexpr const char* kNotEmpty = "not empty";  // the name of the check

std::string empty_fault(const std::string& text) { return text.empty() ? "the text is empty" : ""; }

/// CLI11 takes an empty text for 0.
std::string no_number_fault(const std::string& text) { return text.empty() ? "'' is not a number" : ""; }

}  // namespace

Flag Flag::value_name(const std::string& name) const { return Flag(option_->type_name(name)); }
Flag Flag::group(const std::string& name) const { return Flag(option_->group(name)); }
Flag Flag::show_default() const { return Flag(option_->capture_default_str()); }
Flag Flag::show_default(const std::string& text) const { return Flag(option_->default_str(text)); }

// What refuses an empty value itself, with the range.
Flag Flag::range(int64_t least, int64_t most) const {
  return Flag(may_be_empty().option_->check(CLI::Range(least, most)));
}

Flag Flag::number_range(double least, double most) const {
  return may_be_empty().check([=](const std::string& text) { return number_fault(text, least, most); },
                              number_range_text(least, most));
}

Flag Flag::whole_number() const { return check(whole_number_fault); }

Flag Flag::one_of(const std::vector<std::string>& names) const {
  return Flag(option_->check(CLI::IsMember(names)));
}

Flag Flag::check(std::function<std::string(const std::string&)> fault, const std::string& shown) const {
  return Flag(option_->check(std::move(fault), shown));
}

Flag Flag::may_be_empty() const {
  option_->get_validator(kNotEmpty)->active(false);
  return *this;
}

Flag Flag::required(bool is) const { return Flag(option_->required(is)); }
Flag Flag::excludes(Flag other) const { return Flag(option_->excludes(other.option_)); }
Flag Flag::needs(Flag other) const { return Flag(option_->needs(other.option_)); }
Flag Flag::comma_separated() const { return Flag(option_->delimiter(',')); }
Flag Flag::one_value() const { return Flag(option_->allow_extra_args(false)); }
Flag Flag::optional_value() const { return Flag(option_->expected(0, 1)); }
Flag Flag::values(int count) const { return Flag(option_->expected(count)); }
bool Flag::is_given() const { return option_->count() > 0; }

Flags Flags::add_command(const std::string& name, const std::string& description) const {
  return Flags(app_->add_subcommand(name, description));
}

void Flags::require_command() const { app_->require_subcommand(1); }
void Flags::footer(const std::string& text) const { app_->footer(text); }
void Flags::callback(std::function<void()> function) const { app_->callback(std::move(function)); }

template <class T>
Flag Flags::add_option(const std::string& names, T& value, const std::string& help) const {
  CLI::Option* const option = app_->add_option(names, value, help);
  if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::optional<std::string>> ||
                std::is_same_v<T, std::vector<std::string>>) {
    option->check(empty_fault, "", kNotEmpty);
  } else {
    option->check(no_number_fault, "", kNotEmpty);
  }
  return Flag(option);
}

// All types of values.
template Flag Flags::add_option(const std::string&, uint16_t&, const std::string&) const;
template Flag Flags::add_option(const std::string&, std::string&, const std::string&) const;
template Flag Flags::add_option(const std::string&, uint32_t&, const std::string&) const;
template Flag Flags::add_option(const std::string&, uint64_t&, const std::string&) const;
template Flag Flags::add_option(const std::string&, double&, const std::string&) const;
template Flag Flags::add_option(const std::string&, std::optional<std::string>&, const std::string&) const;
template Flag Flags::add_option(const std::string&, std::optional<int32_t>&, const std::string&) const;
template Flag Flags::add_option(const std::string&, std::optional<uint32_t>&, const std::string&) const;
template Flag Flags::add_option(const std::string&, std::optional<uint64_t>&, const std::string&) const;
template Flag Flags::add_option(const std::string&, std::optional<float>&, const std::string&) const;
template Flag Flags::add_option(const std::string&, std::optional<double>&, const std::string&) const;
template Flag Flags::add_option(const std::string&, std::vector<std::string>&, const std::string&) const;
template Flag Flags::add_option(const std::string&, std::vector<uint32_t>&, const std::string&) const;

Flag Flags::add_option_function(const std::string& names, const std::function<void(const std::string&)>& set,
                                const std::string& help) const {
  return Flag(app_->add_option_function<std::string>(names, set, help));
}

Flag Flags::add_flag(const std::string& names, bool& value, const std::string& help) const {
  return Flag(app_->add_flag(names, value, help));
}

Flag Flags::find(const std::string& name) const { return Flag(app_->get_option(name)); }

bool Flags::is_given(std::string_view name) const {
  const CLI::Option* option = app_->get_option_no_throw(std::string(name));
  return option != nullptr && option->count() > 0;
}

std::vector<std::pair<std::string, std::string>> Flags::given() const {
  std::vector<std::pair<std::string, std::string>> given;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) {
    if (option->count() == 0) continue;
    std::string values;
    for (const std::string& value : option->results()) values += (values.empty() ? "" : " ") + value;
    given.emplace_back(option->get_name(), values);
  }
  return given;
}

std::vector<std::string> Flags::arguments_for(const Flags& other) const {
  std::vector<std::string> arguments;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) {
    if (option->count() == 0 || other.app_->get_option_no_throw(option->get_name()) == nullptr) continue;
    // The first name that turns a flag on: with it, a value "false" means what it says.
    const std::vector<std::string>& names = option->get_lnames();
    const auto on = std::ranges::find_if(names, [&](const auto& each) { return !option->check_fname(each); });
    const std::string name = on == names.end() ? option->get_name() : "--" + *on;
    for (const std::string& value : option->results()) arguments.push_back(name + "=" + value);
  }
  return arguments;
}

Program::Program(const std::string& name, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->formatter(help_formatter());
}

Program::~Program() = default;

Flags Program::flags() const { return Flags(app_.get()); }

void Program::set_version(const std::string& text) { app_->set_version_flag("--version", text); }

Program::Outcome Program::parse(const std::vector<std::string>& args) {
  // CLI11 would take the argument behind it for the value.
  for (const std::string& arg : args) {
    if (arg == "--") break;
    if (arg.starts_with("--") && arg.find('=') + 1 == arg.size()) {
      return {.help = {}, .error = fmt::format("{} has no value behind the '='", arg)};
    }
  }
  try {
    app_->parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForVersion& version) {
    return {.help = std::string(version.what()) + "\n", .error = {}};
  } catch (const CLI::Success&) {
    return {.help = app_->help(), .error = {}};
  } catch (const CLI::ParseError& error) {
    return {.help = {}, .error = usage_error(*app_, error.what())};
  } catch (const Error& error) {
    return {.help = {}, .error = usage_error(*app_, error.what())};
  }
  return {};
}

}  // namespace quire::cli
