#pragma once

#include <memory>
#include <string>

#include "base/ids.h"
#include "control/request.h"
#include "control/scheduler.h"

namespace quire {

/// What the engine reports in Prometheus' form, under vLLM's names so that its dashboards work. Thread-safe.
class EngineMetrics {
 public:
  /// `model_name`: the label that every metric carries, as vLLM has it.
  explicit EngineMetrics(const std::string& model_name);
  ~EngineMetrics();

  void step(const StepStats& stats);
  void prompt_tokens(uint64_t count);
  void generated_tokens(uint64_t count);
  void time_to_first_token(Nanos time);
  void inter_token_latency(Nanos time);
  void request_finished(FinishReason reason, Nanos end_to_end);

  /// The text exposition format.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
