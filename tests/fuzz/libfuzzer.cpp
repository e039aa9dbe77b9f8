#include <cstddef>
#include <cstdint>

#include "base/log.h"
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const quire::fuzz::Target* target = [] {
    quire::set_log_level(quire::LogLevel::kOff);
    return quire::fuzz::find_target(QUIRE_FUZZ_TARGET);
  }();
  target->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
