#pragma once

#include <cstdint>

#include "base/ids.h"

namespace quire::test {

inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000 * kMillisecond;

inline constexpr uint64_t kMiB = 1 << 20;

}  // namespace quire::test
