#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/generate.h"

namespace quire::cli {

/// How the next answers are sampled: by the command line and later changes. Names are those of the flags
/// without dashes; `_` is allowed for `-`. Not thread-safe.
class ChatSettings {
 public:
  /// `defaults`: the model's own.
  ChatSettings(SamplingOptions given, SamplingDefaults defaults);

  /// Checks the value like the flag of that name; "default" removes a change. A stop text may be written as a
  /// JSON string. Throws Error "temperature: ...".
  void set(const std::string& name, const std::string& value);
  /// The current setting of that name: "temperature: 0.9 (the model's)", and whether it has no effect because
  /// the most likely token is always taken. Throws Error if there is no such setting.
  std::string describe(const std::string& name) const;
  /// All settings, one per line: name, value, and its origin.
  std::string list() const;
  const SamplingOptions& options() const { return options_; }

 private:
  /// Names with their values for display, in the order of the help texts.
  std::vector<std::pair<std::string, std::string>> values() const;
  /// The name of the flag. Throws Error if there is no setting of that name.
  std::string known(std::string name) const;

  SamplingOptions given_;
  SamplingDefaults defaults_;
  std::map<std::string, std::string> changed_;  // by flag
  SamplingOptions options_;
};

}  // namespace quire::cli
