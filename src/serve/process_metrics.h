#pragma once

#include <string>

namespace quire::serve {

/// This process's current and peak resident memory, in Prometheus' text format, for appending to other
/// metrics. Empty if the system does not report it.
std::string process_metrics();

}  // namespace quire::serve
