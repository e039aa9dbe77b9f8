#pragma once

#include <cstdint>
#include <string>

#include "tests/control/property/world.h"

namespace quire::test {

/// Makes `count` random stories come true, the same for the same seed. Empty, or RapidCheck's report of the
/// shortest story it found that does not end well.
std::string check_stories(uint64_t seed, int count, Coverage& coverage);

}  // namespace quire::test
