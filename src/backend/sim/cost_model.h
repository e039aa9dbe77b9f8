#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "backend/sim/roofline_cost.h"
#include "backend/step_work.h"
#include "base/ids.h"
#include "control/costs.h"

namespace quire::backend::sim {

/// The time of a step that a few numbers give, in whole nanoseconds. With p prompt tokens (recomputed tokens
/// included), d sequences that decode and m blocks moved to the host or back:
///
///   step + ceil(p * 10^6 / prefill_tokens_per_ms) + (d == 0 ? 0 : decode + (d - 1) * decode_more)
///        + m * swap_block
///
/// With decode_more < decode the cost of decoding grows sub-linearly: the weights are read once for all
/// sequences, so the more sequences decode at once, the cheaper a token is, down to decode_more.
struct LinearCost {
  Nanos step = 1'000'000;               // of every step, whatever it computes
  uint64_t prefill_tokens_per_ms = 10;  // >= 1
  Nanos decode = 10'000'000;            // of one sequence alone
  Nanos decode_more = 100'000;          // of each further one
  Nanos swap_block = 100'000;           // of a block to the host, or back

  Nanos duration(const StepWork& work) const {
    return duration(work.prefill_tokens, work.decoding, work.moved_blocks);
  }
  constexpr Nanos duration(uint64_t prefill_tokens, uint64_t decoding, uint64_t moved_blocks = 0) const {
    const uint64_t prefill = (prefill_tokens * 1'000'000 + prefill_tokens_per_ms - 1) / prefill_tokens_per_ms;
    return step + static_cast<Nanos>(prefill) +
           (decoding == 0 ? 0 : decode + static_cast<Nanos>(decoding - 1) * decode_more) +
           static_cast<Nanos>(moved_blocks) * swap_block;
  }

  /// The most prompt tokens that a step of `time` can compute if it does nothing else; 0 if none.
  constexpr uint64_t prefill_tokens_in(Nanos time) const {
    return time <= step ? 0 : static_cast<uint64_t>(time - step) * prefill_tokens_per_ms / 1'000'000;
  }

  /// The cost hints for a scheduler over such a device when `batch` (at least 1) sequences decode at once.
  /// Use max_num_seqs, since the hints matter only when sequences wait.
  constexpr control::CostHints hints(uint32_t batch) const {
    const auto least = [](Nanos time) { return time < 1 ? Nanos{1} : time; };
    return {.prefill_token = least(static_cast<Nanos>(1'000'000 / prefill_tokens_per_ms)),
            .decode_token = least((step + decode - decode_more) / batch + decode_more),
            .swap_block = least(swap_block)};
  }

  /// Throws Error naming an invalid value: negative, over 1,000 s, no prefill at all, or a decoding cost that
  /// grows faster than linearly.
  void check() const;
};

/// What a phase of a step takes, in nanoseconds: a sum of terms, each of which only grows with the work.
struct PhaseCost {
  double step = 0;            // of every step
  double decode_step = 0;     // of a step in which a sequence decodes
  double decode = 0;          // of each sequence that does
  double chunk = 0;           // of each chunk
  double decode_context = 0;  // of each token that a decoding sequence attends to
  double chunk_square = 0;    // of StepWork::chunk_squares
  double chunk_prefix = 0;    // of StepWork::chunk_prefix
  double logit_row = 0;
  double sampled_row = 0;  // besides its logits; 0 if the fit does not tell them apart
  double moved_block = 0;
  double copy = 0;
  /// Of each token of the step from FittedCost::knots[i] to the next one on; the last one without end.
  std::vector<double> token;

  /// Calls each(name, cost) for all but those of tokens.
  template <class Phase, class Each>
  static void for_each_term(Phase& phase, const Each& each) {
    each("step", phase.step);
    each("decode_step", phase.decode_step);
    each("decode", phase.decode);
    each("chunk", phase.chunk);
    each("decode_context", phase.decode_context);
    each("chunk_square", phase.chunk_square);
    each("chunk_prefix", phase.chunk_prefix);
    each("logit_row", phase.logit_row);
    each("sampled_row", phase.sampled_row);
    each("moved_block", phase.moved_block);
    each("copy", phase.copy);
  }
};

/// "swap": blocks are moved, whatever else there is; "decode": only sequences that decode; "prefill": none
/// that does; else "mixed".
std::string_view step_kind(const StepWork& work);
inline constexpr std::array<std::string_view, 4> kStepKinds = {"decode", "prefill", "mixed", "swap"};

/// The time of a step as it was fitted to the step logs of a machine (sim/calibration.h): of the device, and
/// of the engine around it.
struct FittedCost {
  std::vector<uint64_t> knots;  // tokens in a step; rising from 0
  PhaseCost device;
  PhaseCost host;
  // What those logs had; beyond it, the time is extrapolated.
  StepWork most;                   // of each count
  StepWork least;                  // of each count, in the steps that have some; 0: not known
  std::vector<std::string> kinds;  // step_kind of its steps; empty: not known
  std::vector<double>
      deviations;  // quantiles, at equal distances, of the time in the logs over the fitted one
  // Steps that took far longer, since something else ran: all of the above is without them.
  double slow_part = 0;    // of all steps
  double slow_factor = 1;  // what they took in all, over the fitted time
  std::string model;       // whose steps these were
  std::string machine;     // where: machine_name()
  std::string warning;     // why these are not the times of the run that uses them; "": nothing says so

  /// The time of each phase, in nanoseconds.
  double device_time(const StepWork& work) const;
  double host_time(const StepWork& work) const;
  Nanos duration(const StepWork& work) const;
  /// A factor of the time, drawn with `chance` in [0, 1) from those of the logs: slow steps come as often as
  /// there, though not in a row.
  double deviation(double chance) const;
  /// Throws Error naming an invalid value.
  void check() const;
  /// Whether the work lies beyond what the model was fitted to: more of a count than the most, fewer
  /// sequences that decode than the least, less than half of the least tokens of prompts (a prompt's last
  /// chunk may well be shorter than all that were seen), or a kind of step of which there was none.
  bool extrapolates(const StepWork& work) const;
};

/// How long a step takes.
class CostModel {
 public:
  CostModel() = default;
  CostModel(LinearCost cost) : of_(cost) {}               // NOLINT(google-explicit-constructor)
  CostModel(FittedCost cost) : of_(std::move(cost)) {}    // NOLINT(google-explicit-constructor)
  CostModel(RooflineCost cost) : of_(std::move(cost)) {}  // NOLINT(google-explicit-constructor)

  Nanos duration(const StepWork& work) const {
    return std::visit([&](const auto& cost) { return cost.duration(work); }, of_);
  }
  /// The same for a roofline, with what each sequence attends to; others count `work` alone.
  Nanos duration(const StepWork& work, std::span<const AttentionWork> attention) const {
    return roofline() != nullptr ? roofline()->duration(work, attention) : duration(work);
  }
  /// The same for the step of this number, with a deviation as the fitted ones have (FittedCost::deviation);
  /// without, if nothing is fitted.
  Nanos duration(const StepWork& work, uint64_t seed, uint64_t step) const;
  /// The most prompt tokens that a step of `time` can compute if it does nothing else; 0 if none.
  uint64_t prefill_tokens_in(Nanos time) const;
  /// The cost hints for a scheduler over such a device when `batch` (at least 1) sequences decode at once.
  /// Use max_num_seqs, since the hints matter only when sequences wait.
  control::CostHints hints(uint32_t batch) const;
  /// SchedulerConfig::context_cost; 0 if nothing is fitted.
  uint32_t context_cost() const;
  /// Throws Error naming an invalid value.
  void check() const {
    std::visit([](const auto& cost) { cost.check(); }, of_);
  }

  LinearCost* linear() { return std::get_if<LinearCost>(&of_); }
  const LinearCost* linear() const { return std::get_if<LinearCost>(&of_); }
  const FittedCost* fitted() const { return std::get_if<FittedCost>(&of_); }
  const RooflineCost* roofline() const { return std::get_if<RooflineCost>(&of_); }

 private:
  std::variant<LinearCost, FittedCost, RooflineCost> of_;
};

}  // namespace quire::backend::sim
