#pragma once

#include <cstdint>

namespace quire::sim {

/// A running digest over integers, the same on every machine. For comparing runs; not secure against an
/// adversary.
class Digest {
 public:
  constexpr void add(uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15U;
    state_ ^= state_ >> 29;
  }
  constexpr void add(uint32_t high, uint32_t low) { add(uint64_t{high} << 32 | low); }
  constexpr uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325U;
};

}  // namespace quire::sim
