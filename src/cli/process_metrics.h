#pragma once

#include <string>

namespace quire::cli {

/// This process' resident memory and the most that it was, in Prometheus' text format, to stand behind other
/// metrics. Empty where the system does not say.
std::string process_metrics();

}  // namespace quire::cli
