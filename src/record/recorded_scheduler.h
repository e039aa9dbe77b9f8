#pragma once

#include <string>
#include <string_view>
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
    scheduler_.listen(record, record);
  }
  RecordedScheduler(const RecordedScheduler&) = delete;

  /// `name` is for who reads the record.
  Expected<void> add(SeqSpec spec, std::string_view name = {}) {
    if (record_ != nullptr) record_->add(spec, name);
    try {
      auto added = scheduler_.add(std::move(spec));
      if (record_ != nullptr && !added) record_->refused(added.error());
      settle();
      return added;
    } catch (...) {
      if (record_ != nullptr) record_->take_back_add();
      throw;
    }
  }
  void abort(SeqId id, bool stop_string = false) {
    if (record_ != nullptr) record_->abort(id, stop_string);
    scheduler_.abort(id);
    settle();
  }
  void set_budget(uint32_t tokens) {
    if (record_ != nullptr) record_->set_budget(tokens);
    scheduler_.set_budget(tokens);
  }
  StepPlan plan(Nanos now) {
    if (record_ != nullptr && scheduler_.has_work()) record_->plan(scheduler_.next_step(), now);
    StepPlan plan = scheduler_.plan();
    settle();
    return plan;
  }
  /// As Scheduler has them.
  const std::vector<SeqId>& admitted() const { return scheduler_.admitted(); }
  const std::vector<SeqId>& preempted() const { return scheduler_.preempted(); }
  /// `now`, when the executor was done, is for who reads the record.
  std::vector<SeqEvent> commit(const StepPlan& plan, StepResult result, Nanos now) {
    if (record_ != nullptr) record_->commit(plan.step, result, now);
    std::vector<SeqEvent> events = scheduler_.commit(plan, std::move(result));
    settle();
    return events;
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
  void settle() {
    if (record_ != nullptr) record_->settle();
  }

  Scheduler scheduler_;
  RunWriter* record_;
};

}  // namespace quire
