#pragma once

#include <utility>
#include <vector>

#include "control/scheduler.h"
#include "record/prefix_snapshot.h"
#include "record/run_record.h"

namespace quire {

/// A scheduler whose inputs and decisions are written down, if there is a writer. Otherwise as Scheduler.
class RecordedScheduler {
 public:
  RecordedScheduler(const SchedulerConfig& config, RunWriter* record) : scheduler_(config), record_(record) {
    if (record != nullptr) record->begin(scheduler_.config());
    scheduler_.listen(record);
  }

  Expected<void> add(SeqSpec spec) {
    if (record_ != nullptr) record_->add(spec);
    return scheduler_.add(std::move(spec));
  }
  void abort(SeqId id) {
    if (record_ != nullptr) record_->abort(id);
    scheduler_.abort(id);
  }
  StepPlan plan(Nanos now) {
    if (record_ != nullptr) record_->plan(now);
    return scheduler_.plan(now);
  }
  std::vector<SeqEvent> commit(const StepPlan& plan, StepResult result) {
    if (record_ != nullptr) record_->commit(result);
    return scheduler_.commit(plan, std::move(result));
  }
  /// See prefix_snapshot.h. Returns the nodes with the blocks that they got.
  std::vector<PrefixNode> restore(std::vector<PrefixNode> nodes) {
    if (record_ != nullptr) record_->restore(nodes);
    quire::restore(scheduler_.pool(), nodes);
    return nodes;
  }
  const PrefixCache& cache() { return scheduler_.pool().cache(); }
  void end_record() {
    if (record_ != nullptr) record_->end(scheduler_.digest());
  }

  bool has_work() const { return scheduler_.has_work(); }
  const StepStats& stats() const { return scheduler_.stats(); }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  Scheduler scheduler_;
  RunWriter* record_;
};

}  // namespace quire
