#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "tests/fuzz/targets.h"

/// What OpenSSL keeps for the length of the process it does not free whole at its end.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() { return "leak:libcrypto.so"; }

/// Inputs are as long as the target says, unless the command line does.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static std::string longest =
      "-max_len=" + std::to_string(quire::fuzz::find_target(QUIRE_FUZZ_TARGET)->max_bytes);
  static std::vector<char*> arguments(*argv, *argv + *argc);
  arguments.insert(arguments.begin() + 1, longest.data());
  arguments.push_back(nullptr);
  *argc = static_cast<int>(arguments.size() - 1);
  *argv = arguments.data();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const quire::fuzz::Target* target = [] {
    quire::set_log_level(quire::LogLevel::kOff);
    return quire::fuzz::find_target(QUIRE_FUZZ_TARGET);
  }();
  target->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
