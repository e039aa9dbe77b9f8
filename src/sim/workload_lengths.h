#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"

namespace quire::sim {

/// "12.5" as 12500: a number with at most three decimals, in thousandths, so that no decision depends on a
/// double. Throws Error naming `flag`.
uint64_t parse_thousandths(std::string_view text, std::string_view flag);

/// The longest prompt or answer of a workload, in tokens.
inline constexpr uint32_t kMaxLength = 1 << 30;
inline constexpr Nanos kNanosPerMillisecond = 1'000'000;
inline constexpr Nanos kNanosPerSecond = 1'000'000'000;

/// Lengths as they were counted: how often each, or each range of them, occurs.
struct LengthHistogram {
  struct Bin {
    uint32_t low = 1;
    uint32_t high = 1;
    uint64_t until = 0;  // the sum of the counts up to this bin
  };
  std::vector<Bin> bins;  // with counts over 0, at least one
};

/// The distribution of the lengths of prompts or outputs, in tokens; also of times in milliseconds.
struct Lengths {
  enum class Kind : uint8_t { kFixed, kUniform, kLogNormal, kExponential, kHistogram };
  Kind kind = Kind::kFixed;
  uint32_t low = 1;                // kFixed: the length; else the minimum
  uint32_t high = 1;               // the maximum; a draw outside [low, high] is replaced by the nearer end
  uint32_t mean = 0;               // kLogNormal, kExponential: the mean before that
  uint32_t sigma_thousandths = 0;  // kLogNormal: the sigma of the logarithm
  std::shared_ptr<const LengthHistogram> histogram = nullptr;  // kHistogram

  /// "512", "uniform:LOW:HIGH", "lognormal:MEAN:SIGMA[:MOST]", "exponential:MEAN[:MOST]" (MOST by default:
  /// 1,048,576), or "file:PATH", a histogram: lines "LENGTH,COUNT" or "LOW-HIGH,COUNT" after a header or
  /// none. Throws Error naming `flag`, and of a file its line and field.
  static Lengths parse(std::string_view text, std::string_view flag);
  uint32_t draw(SplitMix64& random) const;
  /// No draw is longer.
  uint32_t most() const;
};

}  // namespace quire::sim
