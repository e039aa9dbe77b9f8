#pragma once

#include <functional>
#include <map>
#include <string>

#include "tests/levels_anywhere/probes.h"

namespace quire::test {

/// What a result consists of: numbers of which any NaN is as good as another, or bits.
enum class Lanes : uint8_t { kBits, kF32, kF64, kF16 };

/// What an instruction gives, by plain loops after its description in Intel's Software Developer's Manual.
struct Definition {
  Lanes lanes;
  /// As Probe::run; of a store it writes to in.memory.
  std::function<void(const ProbeOperands& in, std::byte* to)> run;
  /// Bytes of a lane in memory, of a load or store under the mask; 0 of others.
  size_t memory_lane = 0;
  size_t memory_lanes = 0;
};

/// By the names of the probes.
const std::map<std::string, Definition>& definitions();

}  // namespace quire::test
