#include "serve/process_metrics.h"

#include <fstream>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace quire::serve {

std::string process_metrics() {
  struct Field {
    std::string_view line;
    std::string_view name;
    std::string_view help;
  };
  constexpr Field kFields[] = {
      {"VmRSS:", "process_resident_memory_bytes", "Resident memory size in bytes, mapped files included"},
      {"VmHWM:", "quire:process_resident_memory_peak_bytes",
       "Largest resident memory size in bytes since the start"}};
  std::ifstream status("/proc/self/status");
  std::string out;
  for (std::string line; std::getline(status, line);) {
    for (const Field& field : kFields) {
      if (!line.starts_with(field.line)) continue;
      const unsigned long long kilobytes = std::stoull(line.substr(field.line.size()));
      out += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n{0} {2}\n", field.name, field.help,
                         kilobytes * 1024);
    }
  }
  return out;
}

}  // namespace quire::serve
