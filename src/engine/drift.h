#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/step_work.h"
#include "engine/step_costs.h"

namespace quire::engine {

/// What a step consists of; as a fit of its time distinguishes steps.
enum class StepKind : uint8_t { kDecode, kPrefill, kMixed };
inline constexpr std::array<std::string_view, 3> kStepKindNames = {"decode", "prefill", "mixed"};

constexpr StepKind kind_of(const backend::StepWork& work) {
  if (work.prefill_tokens == 0) return StepKind::kDecode;
  return work.decoding == 0 ? StepKind::kPrefill : StepKind::kMixed;
}

/// How far a model of the time of a step is off, by kind of step, over the last kKept steps of the kind. A
/// step that took more than kMostTimes times as long as predicted counts as one that took so many times: some
/// other program had the machine for a moment. Not thread-safe; allocates nothing but in the constructor.
class Drift {
 public:
  static constexpr size_t kKept = 256;
  static constexpr size_t kLeast = 64;  // steps of a kind, before the model is called off
  static constexpr double kMost = 0.05;
  static constexpr double kMostTimes = 4;

  Drift();
  void add(StepKind kind, const StepCost& predicted, const StepCost& observed);

  /// Predicted over observed time less 1; 0 before the first step of the kind.
  double bias(StepKind kind) const;
  /// A kind was seen kLeast times, and its bias is beyond kMost.
  bool is_off(StepKind kind) const;
  /// "decode steps take 12.5 % longer than predicted (22.5 ms for 20.0 ms, the mean of the last 64), most of
  /// it in the device's phases". REQUIRES: a step of the kind was seen.
  std::string describe(StepKind kind) const;

 private:
  struct Times {
    StepCost predicted;
    StepCost observed;
  };
  struct Kind {
    std::vector<Times> kept;  // kKept of them
    uint64_t count = 0;
    Times sums;  // of those kept
  };
  const Kind& of(StepKind kind) const { return kinds_[static_cast<size_t>(kind)]; }

  std::array<Kind, kStepKindNames.size()> kinds_;
};

}  // namespace quire::engine
