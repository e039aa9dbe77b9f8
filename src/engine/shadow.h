#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/ids.h"
#include "control/request.h"
#include "engine/drift.h"
#include "engine/queue_forecast.h"
#include "engine/shadow_metrics.h"
#include "engine/step_costs.h"
#include "engine/step_log.h"

namespace quire::engine {

/// Runs beside an engine and predicts, by a model of the time of a step, how long each step takes, and when
/// each request will have its first token and its end. It counts how wrong it was, and warns once in the log
/// when it is off (Drift). It counts what it extrapolated (StepCost::is_extrapolated), and warns once of
/// that. All methods are for the engine thread, except metrics_text.
class Shadow final : public StepSink {
 public:
  /// The most sequences that may wait (SchedulerConfig::max_waiting): each arrival looks at all of them.
  static constexpr uint32_t kMostWaiting = 4096;

  /// `model_name`: as of EngineMetrics. `promises`: whether deadlines are promised, and requests for which
  /// one would not be kept are refused.
  Shadow(StepCosts costs, const std::string& model_name, bool promises);
  Shadow(const Shadow&) = delete;

  void take(const backend::StepRecord& record) noexcept override;
  /// Of a step that has been planned.
  Nanos time_of(const control::StepPlan& plan) const;

  /// See QueueForecast; counts it if it needs the time of a step beyond the fit. If the outlook keeps all
  /// promises, the caller adds the request.
  Outlook foresee(const control::Scheduler& scheduler, const control::PrefixCache& cache,
                  const Newcomer& newcomer, Nanos begins, StepTokens budget);
  /// Times from a request's arrival. `in_time`: whether a promise was kept; empty: there was none.
  void first_token(Nanos predicted, Nanos observed, std::optional<bool> in_time);
  void request_ended(Nanos predicted, Nanos observed) { metrics_.end(predicted, observed); }
  void answer_ended(uint32_t tokens, control::FinishReason reason);
  void forget(SeqId seq) { queue_.forget(seq); }
  bool promises() const { return promises_; }

  /// In Prometheus' format. Any thread.
  std::string metrics_text() const { return metrics_.text(); }

 private:
  void warn_of_extrapolation() noexcept;

  const StepCosts costs_;  // sets extrapolated_
  const bool promises_;
  Drift drift_;
  bool warned_ = false;
  bool warned_of_extrapolation_ = false;
  bool extrapolated_ = false;  // since it was last reset
  ShadowMetrics metrics_;
  QueueForecast queue_{costs_};
};

}  // namespace quire::engine
