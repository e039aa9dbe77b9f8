#include <deque>
#include <utility>

#include <fmt/format.h>

#include "record/run_record.h"

namespace quire {
namespace {

/// Compares the decisions of the new run with the recorded ones as both come.
class Comparison final : public DecisionSink {
 public:
  void take(const Decision& decision) override {
    ++made_;
    pending_.push_back(decision);
  }
  /// The next recorded one.
  void expect(const Decision& decision) {
    ++compared_;
    const bool same = !pending_.empty() && pending_.front().kind == decision.kind &&
                      pending_.front().seq == decision.seq && pending_.front().a == decision.a &&
                      pending_.front().b == decision.b;
    if (!same && !difference_) difference_ = compared_;
    if (!pending_.empty()) pending_.pop_front();
  }
  /// Before each input: what was decided so far has been compared.
  void settle() {
    if (!pending_.empty() && !difference_) difference_ = compared_ + 1;
    pending_.clear();
  }
  uint64_t made() const { return made_; }
  std::optional<uint64_t> difference() const { return difference_; }

 private:
  std::deque<Decision> pending_;
  uint64_t made_ = 0;
  uint64_t compared_ = 0;
  std::optional<uint64_t> difference_;
};

StepResult recorded_result(const RunCommit& commit) {
  StepResult out;
  for (const RunCommit::Result& each : commit.results) {
    SeqResult& seq = out.seqs.emplace_back();
    if (each.failed) seq.error = "recorded";
    if (each.token) seq.tokens.emplace_back().token = *each.token;
  }
  return out;
}

}  // namespace

Replay replay(const std::filesystem::path& path) {
  RunReader reader(path);
  Scheduler scheduler(reader.config());
  Comparison comparison;
  scheduler.listen(&comparison);
  Replay out;
  StepPlan plan;
  bool planned = false;
  while (auto event = reader.next()) {
    if (const auto* decision = std::get_if<Decision>(&*event)) {
      comparison.expect(*decision);
      continue;
    }
    comparison.settle();
    if (auto* add = std::get_if<RunAdd>(&*event)) {
      static_cast<void>(scheduler.add(std::move(add->spec)));  // what was refused then is refused again
    } else if (const auto* abort = std::get_if<RunAbort>(&*event)) {
      scheduler.abort(abort->id);
    } else if (const auto* now = std::get_if<RunPlan>(&*event)) {
      if (planned) throw file_error(path, fmt::format("step {} was planned twice", plan.step));
      plan = scheduler.plan(now->now);
      planned = !plan.empty();
      out.steps += planned ? 1 : 0;
    } else if (const auto* commit = std::get_if<RunCommit>(&*event)) {
      if (!std::exchange(planned, false)) throw file_error(path, "results of a step that was not planned");
      scheduler.commit(plan, recorded_result(*commit));
    } else if (std::holds_alternative<RunReset>(*event)) {
      scheduler.reset_prefix_cache();
    } else if (auto* restored = std::get_if<RunRestore>(&*event)) {
      restore(scheduler.pool(), restored->nodes);
    } else {
      out.recorded = std::get<RunEnd>(*event).digest;
    }
  }
  out.decisions = comparison.made();
  out.digest = scheduler.digest();
  out.first_difference = comparison.difference();
  return out;
}

}  // namespace quire
