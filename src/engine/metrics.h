#pragma once

#include <memory>
#include <string>

#include "base/ids.h"
#include "control/request.h"
#include "control/scheduler.h"

namespace quire::engine {

/// When a sequence reached each stage; -1: never.
struct SequenceTimes {
  Nanos admitted = -1;  // for the first time
  Nanos first_token = -1;
  Nanos last_token = -1;
};

/// One choice of a request at its end.
struct EndedChoice {
  control::FinishReason reason = control::FinishReason::kStop;
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  Nanos arrived = 0;
  SequenceTimes times;
  Nanos ended = 0;
};

/// The engine's metrics in Prometheus' format, under vLLM's names so that its dashboards work. Thread-safe.
class EngineMetrics {
 public:
  /// `model_name`: the label of every metric, as in vLLM.
  explicit EngineMetrics(const std::string& model_name);
  ~EngineMetrics();

  void step(const control::StepStats& stats);
  void prompt_tokens(uint64_t count);
  void generated_tokens(uint64_t count);
  void time_to_first_token(Nanos time);
  void inter_token_latency(Nanos time);
  void choice_ended(const EndedChoice& choice);
  /// To be called once per request. `most_tokens`: the tokens of its longest choice.
  void request_ended(uint32_t most_tokens);
  /// The costs that the flag names are of something else, and taken by --force. To be called once per flag.
  void cost_warning(const std::string& flag, const std::string& warning);

  /// The text exposition format.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::engine
