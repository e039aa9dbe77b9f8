#pragma once

#include <memory>
#include <string>

namespace CLI {
class FormatterBase;
}

namespace quire::cli {

/// Help texts: lines of at most 100 columns, with readable descriptions of the values of flags.
std::shared_ptr<CLI::FormatterBase> help_formatter();

/// The value of a flag for the help text, from an option's type name with the descriptions of its checks, and
/// its default: "N:INT in [1 - 64]" and "8" as "N=8 (1 to 64)", "DEVICE:{cpu,sim}" and "cpu" as
/// "{cpu,sim}=cpu".
std::string value_text(const std::string& type_name, const std::string& default_value);

}  // namespace quire::cli
