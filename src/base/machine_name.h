#pragma once

#include <string>

namespace quire {

/// "2 cores of Intel(R) Xeon(R) ..., Linux": the machine that this process runs on, as published figures and
/// cost models name it. Thread-safe.
std::string machine_name();

}  // namespace quire
