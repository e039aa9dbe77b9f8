#include "base/machine_name.h"

#include <cstddef>
#include <fstream>
#include <sys/utsname.h>
#include <thread>

#include <fmt/format.h>

namespace quire {

std::string machine_name() {
  utsname system{};
  uname(&system);
  std::string processor = system.machine;
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    processor = line.substr(colon + 2);
    break;
  }
  return fmt::format("{} cores of {}, {}", std::thread::hardware_concurrency(), processor, system.sysname);
}

}  // namespace quire
