#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "backend/step_work.h"
#include "cli/sweep_plan.h"
#include "engine/step_log.h"
#include "startup/local_engine.h"

namespace quire::cli {

/// Keeps the records of an engine's steps.
class StepCollector final : public engine::StepSink {
 public:
  void take(const backend::StepRecord& record) noexcept override;
  /// Those so far, from the `first` on. Any thread.
  std::vector<backend::StepRecord> records(size_t first = 0) const;

 private:
  mutable std::mutex mutex_;  // guards the following member
  std::vector<backend::StepRecord> records_;
};

/// Gives the engine the requests of a plan (sweep_plan.h): 1 to max_num_seqs sequences that decode, with
/// short and long contexts; chunks of prompts of all lengths, with nothing and with much before them; both in
/// one step; forks, which copy a block; and more than the pool holds, so that blocks are moved to the host
/// and back. All of it in rounds in a random order, so that a machine whose speed changes does so for all
/// kinds of steps alike, for `seconds`, but at least until one round is done. `advance` gets, after each
/// piece, the part of the time that is over, from 0 to 1, and that piece. Returns false if Ctrl-C ended it
/// early. None of its requests runs afterwards, and the engine takes no others. Throws Error if a request
/// fails.
bool run_sweep(startup::LocalEngine& local, const SweepPlan& plan, double seconds,
               const std::function<void(double, const SweepPiece&)>& advance);

}  // namespace quire::cli
