#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

// The description of a command line. CLI11 parses it; its headers take seconds to compile and are included by
// the files behind this one only.
namespace quire::cli {

/// A flag or an argument of a command, while it is described. A copy means the same flag. Each function
/// returns the flag itself, for the next.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  /// The value in the help text: "FILE".
  Flag value_name(const std::string& name) const;
  /// The heading in the help text under which the flag is listed.
  Flag group(const std::string& name) const;
  /// Shows the variable's present value as the default.
  Flag show_default() const;
  Flag show_default(const std::string& text) const;

  /// What values are accepted; the help text shows it.
  Flag range(int64_t least, int64_t most) const;
  /// A finite number.
  Flag number_range(double least, double most) const;
  /// An unsigned 64-bit number.
  Flag whole_number() const;
  Flag one_of(const std::vector<std::string>& names) const;
  /// `fault` returns what is wrong with a value, or an empty text; `shown`: the values in the help text.
  Flag check(std::function<std::string(const std::string&)> fault, const std::string& shown = "") const;
  /// Accepts an empty value, which a flag with a value refuses otherwise: it would be taken for one that is
  /// not given, or for 0, and comes from a variable of a script that is not set.
  Flag may_be_empty() const;

  Flag required(bool is = true) const;
  Flag excludes(Flag other) const;
  Flag needs(Flag other) const;
  /// In a list, "1,2,3" is three values.
  Flag comma_separated() const;
  /// Each mention of a list's flag takes one value.
  Flag one_value() const;
  /// The value may be left out.
  Flag optional_value() const;
  /// A list's flag takes exactly this many values.
  Flag values(int count) const;

  /// Whether the command line has it; for callbacks.
  bool is_given() const;

 private:
  CLI::Option* option_;
};

/// The flags, arguments and subcommands of a command. A copy means the same command.
class Flags {
 public:
  explicit Flags(CLI::App* app) : app_(app) {}

  Flags add_command(const std::string& name, const std::string& description) const;
  /// A subcommand must be given.
  void require_command() const;
  /// The end of the help text; also of commands that are added later.
  void footer(const std::string& text) const;
  /// `function` is called once the whole command line is parsed; it may throw Error.
  void callback(std::function<void()> function) const;

  /// An option with a value, "-p,--prompt", or an argument, "model". `value` must outlive the parsing. T is a
  /// type that flags.cpp lists.
  template <class T>
  Flag add_option(const std::string& names, T& value, const std::string& help) const;
  Flag add_option_function(const std::string& names, const std::function<void(const std::string&)>& set,
                           const std::string& help) const;
  /// A flag without a value. "!--no-x,--x" turns `value` on and off.
  Flag add_flag(const std::string& names, bool& value, const std::string& help) const;

  /// The flag of that name, which must exist.
  Flag find(const std::string& name) const;
  /// Whether the command line has the flag; false if the command has no flag of that name.
  bool is_given(std::string_view name) const;
  /// The flags and arguments that the command line has, with their values separated by spaces.
  std::vector<std::pair<std::string, std::string>> given() const;
  /// Of those, the ones that `other` has too, as a command line of it: "--name=value" with the first
  /// long name.
  std::vector<std::string> arguments_for(const Flags& other) const;

 private:
  CLI::App* app_;
};

/// A command line as a whole.
class Program {
 public:
  Program(const std::string& name, const std::string& description);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Flags flags() const;
  /// Adds --version.
  void set_version(const std::string& text);

  /// What a parse gave; both are empty if the arguments are right and nothing is to be shown.
  struct Outcome {
    std::string help;   // the help text or the version
    std::string error;  // one line
  };
  /// `args`: without the program's name. Never throws.
  Outcome parse(const std::vector<std::string>& args);

  /// For usage_error.h.
  const CLI::App& app() const { return *app_; }

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace quire::cli
