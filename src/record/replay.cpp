#include <algorithm>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "record/display_text.h"
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
    if (!same) differs(compared_, decision.step, decision);
    if (!pending_.empty()) pending_.pop_front();
  }
  /// Before each input: what was decided so far has been compared.
  void settle() {
    if (!pending_.empty()) differs(compared_ + 1, pending_.front().step, std::nullopt);
    pending_.clear();
  }
  uint64_t made() const { return made_; }
  const std::optional<ReplayDifference>& difference() const { return difference_; }

 private:
  void differs(uint64_t number, uint64_t step, const std::optional<Decision>& recorded) {
    if (difference_) return;
    difference_ = {number, step, recorded, std::nullopt};
    if (!pending_.empty()) difference_->made = pending_.front();
  }

  std::deque<Decision> pending_;
  uint64_t made_ = 0;
  uint64_t compared_ = 0;
  std::optional<ReplayDifference> difference_;
};

/// The blocks that are evicted.
class Evicted final : public DecisionSink {
 public:
  void take(const Decision& decision) override {
    if (decision.kind == DecisionKind::kEvict) blocks.push_back(decision.a);
  }
  std::vector<BlockId> blocks;
};

/// "allocate block 14" of request 12
std::string decision_text(const std::optional<Decision>& decision) {
  if (!decision) return "nothing more before the next input";
  const uint32_t a = decision->a;
  std::string what;
  switch (decision->kind) {
    case DecisionKind::kAdd:
      what = fmt::format("{} prompt tokens, at most {} to generate", a, decision->b);
      break;
    case DecisionKind::kAdmit:
      what = fmt::format("slot {}, {} tokens have K/V", a, decision->b);
      break;
    case DecisionKind::kHit:
      what = fmt::format("{} of {} tokens", a, decision->b);
      break;
    case DecisionKind::kSkip:
      what = a < std::size(kWaitNames) ? fmt::format("{}, {} blocks needed", kWaitNames[a], decision->b)
                                       : fmt::format("reason {}", a);
      break;
    case DecisionKind::kChunk:
      what = fmt::format("{} from position {} on", plural(decision->b, "token"), a);
      break;
    case DecisionKind::kCopy:
      what = fmt::format("block {} to block {}", a, decision->b);
      break;
    case DecisionKind::kPreempt:
      what = fmt::format("{} given up, time {}", plural(a, "token"), decision->b);
      break;
    case DecisionKind::kSwapOut:
    case DecisionKind::kSwapIn:
      what = plural(a, "block");
      break;
    case DecisionKind::kFinish:
      what = fmt::format("reason {}", a);
      break;
    default:
      what = fmt::format("block {}", a);
  }
  return fmt::format("\"{} {}\"{}", kDecisionNames[static_cast<size_t>(decision->kind)], what,
                     decision->seq == kNoSeq ? "" : fmt::format(" of request {}", decision->seq));
}

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

std::string difference_text(const ReplayDifference& difference) {
  return fmt::format("decision {}, in step {}, differs: the log has {}, and replaying it gives {}",
                     with_commas(difference.number), with_commas(difference.step),
                     decision_text(difference.recorded), decision_text(difference.made));
}

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
      if (commit->results.size() != plan.seqs.size()) {
        throw file_error(path, fmt::format("step {}: results for {} sequences instead of {}", plan.step,
                                           commit->results.size(), plan.seqs.size()));
      }
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
  Evicted evicted;
  scheduler.listen(&evicted);
  scheduler.reset_prefix_cache();
  out.cached_at_end = std::move(evicted.blocks);
  std::ranges::sort(out.cached_at_end);
  return out;
}

}  // namespace quire
