#include "cli/chat_settings.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/usage_error.h"
#include "record/display_text.h"

namespace quire::cli {
namespace {

/// `options` with some flags given anew. Throws Error.
SamplingOptions with_flags(SamplingOptions options, const std::map<std::string, std::string>& flags) {
  CLI::App app("", "/set");
  add_sampling_options(app, options);
  std::vector<std::string> args;
  for (const auto& [name, value] : flags) args.push_back(fmt::format("--{}={}", name, value));
  std::reverse(args.begin(), args.end());  // as CLI11 wants them
  try {
    app.parse(std::move(args));
  } catch (const CLI::ParseError& error) {
    std::string what = usage_error(app, error.what());
    if (what.starts_with("--")) what.erase(0, 2);
    throw Error(what);
  }
  return options;
}

/// What can be set, in the order of the help texts.
std::vector<std::string> setting_names() {
  SamplingOptions options;
  CLI::App app;
  app.set_help_flag();
  add_sampling_options(app, options);
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) names.push_back(option->get_lnames().front());
  return names;
}

std::string_view nearest_of(std::string_view name, const std::vector<std::string>& names) {
  return *std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
}

template <class T>
std::string value_and_source(const std::optional<T>& given, const std::optional<T>& of_model, T neutral) {
  if (given) return fmt::format("{}", *given);
  if (of_model) return fmt::format("{} (the model's)", *of_model);
  return fmt::format("{} (default)", neutral);
}

}  // namespace

ChatSettings::ChatSettings(SamplingOptions given, SamplingDefaults defaults)
    : given_(std::move(given)), defaults_(std::move(defaults)), options_(given_) {}

void ChatSettings::set(std::string name, const std::string& value) {
  std::replace(name.begin(), name.end(), '_', '-');
  const std::vector<std::string> names = setting_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw Error(fmt::format("there is no setting '{}'; did you mean {}? /set lists all", printable(name),
                            nearest_of(name, names)));
  }
  auto changed = changed_;
  if (value == "default") {
    changed.erase(name);
  } else {
    changed[name] = value;
  }
  SamplingOptions options = with_flags(given_, changed);
  // What no flag's check sees, and a request would be refused for.
  make_request(options, defaults_, {});
  changed_ = std::move(changed);
  options_ = std::move(options);
}

std::string ChatSettings::list() const {
  const SamplingParams neutral;
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<20} {}\n", name, value);
  };
  line("temperature", value_and_source(options_.temperature, defaults_.temperature, neutral.temperature));
  line("top-k", value_and_source(options_.top_k, defaults_.top_k, neutral.top_k));
  line("top-p", value_and_source(options_.top_p, defaults_.top_p, neutral.top_p));
  line("min-p", value_and_source(options_.min_p, defaults_.min_p, neutral.min_p));
  line("repetition-penalty", value_and_source(options_.repetition_penalty, defaults_.repetition_penalty,
                                              neutral.repetition_penalty));
  line("seed", fmt::format("{}", options_.seed));
  line("max-tokens",
       options_.max_tokens == 0 ? "what the model's length leaves" : std::to_string(options_.max_tokens));
  line("stop",
       options_.stop.empty() ? "none" : printable(fmt::format("{}", fmt::join(options_.stop, " | "))));
  line("ignore-eos", options_.ignore_eos ? "true" : "false");
  return text;
}

}  // namespace quire::cli
