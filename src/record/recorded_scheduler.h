#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/scheduler.h"
#include "record/prefix_snapshot.h"
#include "record/run_record.h"
#include "record/run_tap.h"

namespace quire::record {

/// A Scheduler whose inputs and decisions are recorded, if there is a writer, and watched, while there is a
/// tap.
class RecordedScheduler {
 public:
  RecordedScheduler(const control::SchedulerConfig& config, RunWriter* record)
      : scheduler_(config), record_(record) {
    if (record != nullptr) record->begin(scheduler_.config());
    scheduler_.listen(record, record);
  }
  RecordedScheduler(const RecordedScheduler&) = delete;

  /// The tap gets the state of now, and all that follows; null: none gets any more. `name`: of a sequence,
  /// for readers. REQUIRES: no plan is open.
  void watch(RunTap* tap, const std::function<std::string(SeqId)>& name) {
    if (tap == nullptr) return unwatch();
    tap->begin(start_of(scheduler_, name));
    tap_ = tap;
    both_.record = record_;
    both_.tap = tap;
    if (record_ != nullptr) return scheduler_.listen(&both_, &both_);
    scheduler_.listen(tap, tap);
  }
  void unwatch() {
    tap_ = nullptr;
    scheduler_.listen(record_, record_);
  }

  /// `name` is only for readers of the record.
  Expected<void> add(control::SeqSpec spec, std::string_view name = {}) {
    if (record_ != nullptr && record_->wants_part() && !has_work() && open_ == 0)
      record_->begin_part(scheduler_);
    if (record_ != nullptr) record_->add(spec, name);
    if (tap_ != nullptr) tap_->add(spec, name);
    try {
      auto added = scheduler_.add(std::move(spec));
      if (record_ != nullptr && !added) record_->refused(added.error());
      if (tap_ != nullptr && !added) tap_->take_back_add();
      settle();
      return added;
    } catch (...) {
      if (record_ != nullptr) record_->take_back_add();
      if (tap_ != nullptr) tap_->take_back_add();
      throw;
    }
  }
  void abort(SeqId id, bool stop_string = false) {
    if (record_ != nullptr) record_->abort(id, stop_string);
    if (tap_ != nullptr) tap_->abort(id, stop_string);
    scheduler_.abort(id);
    settle();
  }
  void set_budget(uint32_t tokens) {
    if (record_ != nullptr) record_->set_budget(tokens);
    if (tap_ != nullptr) tap_->set_budget(tokens);
    scheduler_.set_budget(tokens);
  }
  control::StepPlan plan(Nanos now) {
    if (record_ != nullptr && scheduler_.has_work()) record_->plan(scheduler_.next_step(), now);
    if (tap_ != nullptr && scheduler_.has_work()) tap_->plan(scheduler_.next_step(), now);
    control::StepPlan plan = scheduler_.plan();
    if (!plan.empty()) ++open_;
    if (tap_ != nullptr) tap_->planned(plan);
    settle();
    return plan;
  }
  /// See Scheduler.
  const std::vector<SeqId>& admitted() const { return scheduler_.admitted(); }
  const std::vector<SeqId>& preempted() const { return scheduler_.preempted(); }
  /// `now`: when the executor was done; only for readers of the record.
  std::vector<control::SeqEvent> commit(const control::StepPlan& plan, control::StepResult result,
                                        Nanos now) {
    if (record_ != nullptr) record_->commit(plan.step, result, now);
    if (tap_ != nullptr) tap_->commit(plan.step, result, now);
    std::vector<control::SeqEvent> events = scheduler_.commit(plan, std::move(result));
    --open_;
    settle();
    return events;
  }
  /// See Scheduler.
  std::vector<control::PromptEvent>& prompts() { return scheduler_.prompts(); }
  /// See prefix_snapshot.h. Returns the nodes with the blocks that they got.
  std::vector<PrefixNode> restore(std::vector<PrefixNode> nodes) {
    if (record_ != nullptr) record_->restore(nodes);
    quire::record::restore(scheduler_.pool(), nodes);
    return nodes;
  }
  const control::PrefixCache& cache() { return scheduler_.pool().cache(); }
  uint32_t blocks_held() { return scheduler_.pool().num_referenced(); }
  uint32_t blocks_cached() { return scheduler_.pool().num_cached(); }
  void end_record() {
    if (record_ != nullptr) record_->end(scheduler_.digest());
  }

  bool has_work() const { return scheduler_.has_work(); }
  const control::StepStats& stats() const { return scheduler_.stats(); }
  const control::Scheduler& scheduler() const { return scheduler_; }

 private:
  void settle() {
    if (record_ != nullptr) record_->settle();
    if (tap_ != nullptr) tap_->settle();
  }

  struct Both final : control::DecisionSink, control::CauseSink {
    void take(const control::Decision& decision) override {
      record->take(decision);
      tap->take(decision);
    }
    void take(const control::Cause& cause) override {
      record->take(cause);
      tap->take(cause);
    }
    RunWriter* record = nullptr;
    RunTap* tap = nullptr;
  };

  control::Scheduler scheduler_;
  RunWriter* record_;
  RunTap* tap_ = nullptr;
  Both both_;
  uint32_t open_ = 0;  // plans that are not committed
};

}  // namespace quire::record
