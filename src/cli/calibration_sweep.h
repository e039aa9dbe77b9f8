#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "backend/step_work.h"
#include "engine/step_log.h"
#include "startup/local_engine.h"

namespace quire::cli {

/// Keeps the records of an engine's steps.
class StepCollector final : public engine::StepSink {
 public:
  void take(const backend::StepRecord& record) noexcept override;
  /// Those so far. Any thread.
  std::vector<backend::StepRecord> records() const;

 private:
  mutable std::mutex mutex_;  // guards the following member
  std::vector<backend::StepRecord> records_;
};

/// Gives the engine requests whose steps cover what a server's steps may be: 1 to max_num_seqs sequences that
/// decode, with short and long contexts; chunks of prompts of all lengths, with nothing and with much before
/// them; both in one step. None is preempted, so moves to the host are not measured. All of it in rounds in a
/// random order, so that a machine whose speed changes does so for all kinds of steps alike, for `seconds`,
/// but at least until one round is done. `advance(done)`: the part of it that is done, from 0 to 1. Throws
/// Error if sequences are too short, or a request fails.
void run_sweep(startup::LocalEngine& local, double seconds, const std::function<void(double)>& advance);

}  // namespace quire::cli
