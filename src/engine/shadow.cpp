#include "engine/shadow.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace quire::engine {

Shadow::Shadow(StepCosts costs, const std::string& model_name, bool promises)
    : costs_([this, costs = std::move(costs)](const backend::StepWork& work) {
        const StepCost cost = costs(work);
        extrapolated_ = extrapolated_ || cost.is_extrapolated;
        return cost;
      }),
      promises_(promises),
      metrics_(model_name) {}

void Shadow::take(const backend::StepRecord& record) noexcept {
  const StepKind kind = kind_of(record.work);
  const StepCost predicted = costs_(record.work);
  if (predicted.is_extrapolated) warn_of_extrapolation();
  // Divided as sim/calibration.h divides a step.
  const auto device = static_cast<double>(std::min(record.compute + record.sample, record.whole));
  const StepCost observed{.device = device, .host = static_cast<double>(record.whole) - device};
  drift_.add(kind, predicted, observed);
  metrics_.step(kind, predicted, observed, drift_.bias(kind));
  if (warned_ || !drift_.is_off(kind)) return;
  warned_ = true;
  try {
    log_warning(
        fmt::format("--shadow: {}: its predictions are off by as much; quire calibrate fits a cost "
                    "model to the machine as it is",
                    drift_.describe(kind)));
  } catch (...) {
    log_warning("--shadow: its predictions are off");
  }
}

void Shadow::warn_of_extrapolation() noexcept {
  if (warned_of_extrapolation_) return;
  warned_of_extrapolation_ = true;
  log_warning(
      "--shadow: a step lies beyond what the cost model was fitted to (more of some count, as "
      "tokens, context or copies, fewer tokens or sequences, or another kind of step): "
      "its time is extrapolated, as that of others may be; quire:extrapolated_steps_total counts them");
}

Nanos Shadow::time_of(const control::StepPlan& plan) const {
  return static_cast<Nanos>(costs_(backend::work_of(plan)).whole());
}

Outlook Shadow::foresee(const control::Scheduler& scheduler, const control::PrefixCache& cache,
                        const Newcomer& newcomer, Nanos begins, StepTokens budget) {
  extrapolated_ = false;
  Outlook outlook = queue_.foresee(scheduler, cache, newcomer, begins, budget, promises_);
  if (extrapolated_) {
    metrics_.extrapolated_forecast();
    warn_of_extrapolation();
  }
  if (outlook.unkept) {
    metrics_.refused(*outlook.unkept == Unkept::kAnother);
  } else if (promises_ && newcomer.ttft_deadline) {
    metrics_.promised();
  }
  return outlook;
}

void Shadow::first_token(Nanos predicted, Nanos observed, std::optional<bool> in_time) {
  metrics_.first_token(predicted, observed);
  if (in_time.value_or(false)) metrics_.kept();
}

void Shadow::answer_ended(uint32_t tokens, control::FinishReason reason) {
  const bool cut = reason == control::FinishReason::kLength;
  if (tokens > 0 && (cut || reason == control::FinishReason::kStop)) queue_.answer_ended(tokens, cut);
}

}  // namespace quire::engine
