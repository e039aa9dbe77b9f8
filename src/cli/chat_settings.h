#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/generate.h"

namespace quire::cli {

/// How the next answers are sampled: what the command line said, and what somebody has set since. Names are
/// those of the flags without dashes, `_` for `-` allowed. Not thread-safe.
class ChatSettings {
 public:
  /// `defaults`: the model's own.
  ChatSettings(SamplingOptions given, SamplingDefaults defaults);

  /// Checked as the flag of that name is; "default" takes back what was set. A stop text may be written as a
  /// JSON string. Throws Error "temperature: ...".
  void set(const std::string& name, const std::string& value);
  /// The setting of that name as it is: "temperature: 0.9 (the model's)", and whether it changes
  /// nothing because the likeliest token is always taken. Throws Error if there is none.
  std::string describe(const std::string& name) const;
  /// All of them, a line each: name, value, and where it comes from.
  std::string list() const;
  const SamplingOptions& options() const { return options_; }

 private:
  /// Names with their values as a person reads them, in the order of the help texts.
  std::vector<std::pair<std::string, std::string>> values() const;
  /// As the flag has it. Throws Error if there is none of that name.
  std::string known(std::string name) const;

  SamplingOptions given_;
  SamplingDefaults defaults_;
  std::map<std::string, std::string> changed_;  // by flag
  SamplingOptions options_;
};

}  // namespace quire::cli
