#pragma once

#include <cstdint>

namespace quire::test::fibers {

inline constexpr uint32_t kProbeThreads = 32;
inline constexpr uint32_t kProbeLaunches = 200;
/// Runs one entry of ptx.h in each of kProbeThreads threads. `in` and `out` have 16 bytes a thread for the
/// loads and stores, and otherwise one operand or result a thread. "early" is launched kProbeLaunches times.
void probe(const char* entry, const void* in, void* out);

}  // namespace quire::test::fibers
