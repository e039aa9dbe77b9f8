#pragma once

#include <map>
#include <string>

#include "cli/generate.h"

namespace quire::cli {

/// How the next answers are sampled: what the command line said, and what somebody has set since. Names are
/// those of the flags without dashes, `_` for `-` allowed. Not thread-safe.
class ChatSettings {
 public:
  /// `defaults`: the model's own.
  ChatSettings(SamplingOptions given, SamplingDefaults defaults);

  /// Checked as the flag of that name is; "default" takes back what was set. Throws Error "temperature: ...".
  void set(std::string name, const std::string& value);
  /// All of them, a line each: name, value, and where it comes from.
  std::string list() const;
  const SamplingOptions& options() const { return options_; }

 private:
  SamplingOptions given_;
  SamplingDefaults defaults_;
  std::map<std::string, std::string> changed_;  // by flag
  SamplingOptions options_;
};

}  // namespace quire::cli
