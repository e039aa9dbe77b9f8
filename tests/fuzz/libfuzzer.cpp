#include <cstddef>
#include <cstdint>

#include "base/log.h"
#include "tests/fuzz/targets.h"

/// What OpenSSL keeps for the length of the process it does not free whole at its end.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() { return "leak:libcrypto.so"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const quire::fuzz::Target* target = [] {
    quire::set_log_level(quire::LogLevel::kOff);
    return quire::fuzz::find_target(QUIRE_FUZZ_TARGET);
  }();
  target->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
