#pragma once

#include <memory>
#include <string>

#include "base/ids.h"
#include "engine/drift.h"

namespace quire::engine {

/// What was predicted beside what was observed, in Prometheus' format. Thread-safe.
class ShadowMetrics {
 public:
  /// `model_name`: as of EngineMetrics.
  explicit ShadowMetrics(const std::string& model_name);
  ~ShadowMetrics();

  /// `bias`: of the kind, with this step.
  void step(StepKind kind, const StepCost& predicted, const StepCost& observed, double bias);
  void first_token(Nanos predicted, Nanos observed);
  void end(Nanos predicted, Nanos observed);
  /// A request was foretold with steps whose times are extrapolated.
  void extrapolated_forecast();
  void promised();
  void kept();
  /// `broke_another`: its admission would have broken the promise to another request.
  void refused(bool broke_another);

  /// The text exposition format.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::engine
