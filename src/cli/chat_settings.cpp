#include "cli/chat_settings.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/did_you_mean.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "cli/usage_error.h"
#include "record/display_text.h"

namespace quire::cli {
namespace {

/// `options` with some flags changed. Throws Error.
SamplingOptions with_flags(SamplingOptions options, const std::map<std::string, std::string>& flags) {
  Program program("/set", "");
  add_sampling_options(program.flags(), options);
  std::vector<std::string> args;
  for (const auto& [name, value] : flags) args.push_back(fmt::format("--{}={}", name, value));
  std::string what = program.parse(args).error;
  if (what.starts_with("--")) what.erase(0, 2);
  if (!what.empty()) throw Error(what);
  return options;
}

/// Whether the value is accepted for a flag without an argument.
bool is_truth_value(const std::string& value) {
  constexpr std::array<std::string_view, 8> kValues = {"true", "false", "yes", "no", "on", "off", "1", "0"};
  return std::find(kValues.begin(), kValues.end(), value) != kValues.end();
}

/// A text that may be written as a JSON string, for blanks at its ends and for line feeds.
std::string text_of(std::string_view name, const std::string& value) {
  if (!value.starts_with('"')) return value;
  json::error_code failed;
  const json::value parsed = json::parse(value, failed);
  if (failed || !parsed.is_string()) {
    throw Error(
        fmt::format("{}: {} is not a text in double quotes; as in JSON, \\\" is a quote and \\n ends a line",
                    name, shortened(value)));
  }
  if (parsed.get_string().empty()) throw Error(fmt::format("{}: the text is empty", name));
  return std::string(parsed.get_string());
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

std::string ChatSettings::known(std::string name) const {
  std::replace(name.begin(), name.end(), '_', '-');
  if (name.starts_with("--")) name.erase(0, 2);
  std::vector<std::string> names;
  for (const auto& each : values()) names.push_back(each.first);
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string hint = did_you_mean(name, views);
  throw Error(fmt::format("there is no setting '{}'{}; /set lists all", shortened(name),
                          hint.empty() ? "" : ": " + hint.substr(0, hint.size() - 1)));
}

void ChatSettings::set(const std::string& given_name, const std::string& value) {
  const std::string name = known(given_name);
  auto changed = changed_;
  if (value == "default") {
    changed.erase(name);
  } else if (name == "ignore-eos" && !is_truth_value(value)) {
    throw Error(fmt::format("{}: '{}' is neither true nor false", name, shortened(value)));
  } else {
    changed[name] = name == "stop" ? text_of(name, value) : value;
  }
  SamplingOptions options = with_flags(given_, changed);
  // Checks what no flag's check covers but would make a request fail.
  make_request(options, defaults_, {});
  changed_ = std::move(changed);
  options_ = std::move(options);
}

std::vector<std::pair<std::string, std::string>> ChatSettings::values() const {
  const SamplingParams neutral;
  std::vector<std::string> stops;
  for (const std::string& stop : options_.stop)
    stops.push_back(json::serialize(json::string(record::valid_utf8(stop))));
  return {{"temperature", value_and_source(options_.temperature, defaults_.temperature, neutral.temperature)},
          {"top-k", value_and_source(options_.top_k, defaults_.top_k, neutral.top_k)},
          {"top-p", value_and_source(options_.top_p, defaults_.top_p, neutral.top_p)},
          {"min-p", value_and_source(options_.min_p, defaults_.min_p, neutral.min_p)},
          {"repetition-penalty", value_and_source(options_.repetition_penalty, defaults_.repetition_penalty,
                                                  neutral.repetition_penalty)},
          {"seed", fmt::format("{}", options_.seed)},
          {"max-tokens",
           options_.max_tokens == 0 ? "what the model's length leaves" : std::to_string(options_.max_tokens)},
          {"stop", stops.empty() ? "none" : terminal_text(fmt::format("{}", fmt::join(stops, ", ")))},
          {"ignore-eos", options_.ignore_eos ? "true" : "false"}};
}

std::string ChatSettings::describe(const std::string& name) const {
  const std::string flag = known(name);
  const bool idle = make_request(options_, defaults_, {}).sampling.greedy() &&
                    (flag == "top-k" || flag == "top-p" || flag == "min-p" || flag == "seed");
  for (const auto& [each, value] : values()) {
    if (each != flag) continue;
    return fmt::format("{}: {}{}", each, value,
                       idle ? ", which changes nothing while the temperature is 0" : "");
  }
  return {};
}

std::string ChatSettings::list() const {
  std::string text;
  for (const auto& [name, value] : values()) text += fmt::format("  {:<20} {}\n", name, value);
  return text;
}

}  // namespace quire::cli
