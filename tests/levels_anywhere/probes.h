#pragma once

#include <cstddef>
#include <cstdint>

// Each emulated instruction as a function over bytes: of tests/levels_anywhere/instructions, and of the
// machine itself where it has them.
namespace quire::test {

inline constexpr size_t kProbeBytes = 1024;  // a tile; a register is the first 64

struct ProbeOperands {
  alignas(64) std::byte a[kProbeBytes];
  alignas(64) std::byte b[kProbeBytes];
  alignas(64) std::byte c[kProbeBytes];
  uint64_t mask;
  std::byte* memory;  // for loads and stores under the mask
};

enum class Needs : uint8_t { kAvxVnni, kAvx512, kVnni, kBf16, kAmx };

struct Probe {
  const char* name;  // of the intrinsic, and what it is given as a constant
  Needs needs;
  /// Fills `to`, [kProbeBytes], as far as the instruction gives anything.
  void (*run)(const ProbeOperands& in, std::byte* to);
};

struct Probes {
  const Probe* first;
  size_t count;
};
Probes emulated_probes();
/// REQUIRES of `run`: the machine has what the probe needs.
Probes real_probes();

}  // namespace quire::test
