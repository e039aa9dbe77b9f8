#include "sim/replay.h"

#include <algorithm>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "backend/sim/sim_executor.h"
#include "base/error.h"
#include "base/file_error.h"

namespace quire::sim {
namespace {

// A scheduler sets its books up before anything happens, of sizes that the log's first line says. So much is
// taken for granted (it costs about 100 MiB), and more where the log is long enough to have used it.
constexpr uint64_t kBlocksOfAnyLog = uint64_t{1} << 20;
constexpr uint64_t kTokensOfAnyLog = uint64_t{1} << 25;  // that the blocks have places for
constexpr uint64_t kSlotsOfAnyLog = uint64_t{1} << 16;

/// Throws Error if the books would be larger than what the log can account for.
const control::SchedulerConfig& checked_sizes(const record::RunReader& reader,
                                              const std::filesystem::path& path) {
  const control::SchedulerConfig& config = reader.config();
  const auto require = [&](std::string_view what, uint64_t size, uint64_t of_any_log) {
    const uint64_t most = std::max(of_any_log, reader.num_bytes());
    if (size <= most) return;
    throw file_error(
        path, fmt::format("is not replayed: {} {} are more than a log of {} bytes can explain ({})", size,
                          what, reader.num_bytes(), most));
  };
  require("blocks", config.num_blocks, kBlocksOfAnyLog);
  require("host blocks", config.num_host_blocks, kBlocksOfAnyLog);
  require("tokens in its blocks", uint64_t{config.num_blocks} * config.block_size, kTokensOfAnyLog);
  require("slots", config.max_num_seqs, kSlotsOfAnyLog);
  return config;
}

/// Compares the decisions of the new run with the recorded ones as both come.
class Comparison final : public control::DecisionSink {
 public:
  void take(const control::Decision& decision) override {
    ++made_;
    pending_.push_back(decision);
  }
  /// The next recorded one.
  void expect(const control::Decision& decision) {
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
  const std::optional<record::ReplayDifference>& difference() const { return difference_; }

 private:
  void differs(uint64_t number, uint64_t step, const std::optional<control::Decision>& recorded) {
    if (difference_) return;
    difference_ = {number, step, recorded, std::nullopt};
    if (!pending_.empty()) difference_->made = pending_.front();
  }

  std::deque<control::Decision> pending_;
  uint64_t made_ = 0;
  uint64_t compared_ = 0;
  std::optional<record::ReplayDifference> difference_;
};

/// Carries out the plans of the new run, with the results of the recorded one.
class Player {
 public:
  explicit Player(const control::SchedulerConfig& config)
      : executor_(config, {}, {.vocab_size = INT32_MAX, .next = [this](const backend::sim::SimPosition&) {
                                 return next();
                               }}) {}

  control::StepResult run(const std::filesystem::path& path, const control::StepPlan& plan,
                          const record::RunCommit& commit) {
    if (commit.results.size() != plan.seqs.size()) {
      throw file_error(path, fmt::format("step {}: results for {} sequences instead of {}", plan.step,
                                         commit.results.size(), plan.seqs.size()));
    }
    said_.clear();
    for (size_t i = 0; i < plan.seqs.size(); ++i) {
      if (plan.seqs[i].rows == control::LogitRows::kLast)
        said_.push_back(commit.results[i].token.value_or(0));
    }
    next_ = said_.begin();
    control::StepResult out = executor_.wait(executor_.submit(plan));
    for (size_t i = 0; i < plan.seqs.size(); ++i) {
      const record::RunCommit::Result& recorded = commit.results[i];
      if (recorded.failed) out.seqs[i].error = "recorded";
      if (!recorded.token) out.seqs[i].tokens.clear();
      if (recorded.token.has_value() == out.seqs[i].tokens.empty()) {
        throw file_error(path, fmt::format("step {}: a token where none was requested", plan.step));
      }
    }
    return out;
  }

 private:
  TokenId next() { return *next_++; }

  backend::sim::SimExecutor executor_;
  std::vector<TokenId> said_;  // in this step, in the order of its sequences
  std::vector<TokenId>::const_iterator next_;
};

}  // namespace

record::Replay replay(const std::filesystem::path& path) {
  record::RunReader reader(path);
  control::Scheduler scheduler(checked_sizes(reader, path));
  Player player(reader.config());
  Comparison comparison;
  scheduler.listen(&comparison);
  record::Replay out;
  std::deque<control::StepPlan> open;
  // Behind a difference the inputs belong to another run.
  while (!comparison.difference()) {
    auto event = reader.next();
    if (!event) break;
    if (std::holds_alternative<control::Cause>(*event) || std::holds_alternative<record::RunRefusal>(*event))
      continue;
    if (const auto* decision = std::get_if<control::Decision>(&*event)) {
      comparison.expect(*decision);
      continue;
    }
    comparison.settle();
    if (comparison.difference()) break;
    if (auto* add = std::get_if<record::RunAdd>(&*event)) {
      static_cast<void>(scheduler.add(std::move(add->spec)));  // what was refused then is refused again
    } else if (const auto* abort = std::get_if<record::RunAbort>(&*event)) {
      scheduler.abort(abort->id);
    } else if (const auto* budget = std::get_if<record::RunBudget>(&*event)) {
      scheduler.set_budget(budget->tokens);
    } else if (std::holds_alternative<record::RunPlan>(*event)) {
      if (open.size() == backend::kMostOpenSteps) {
        throw file_error(path, fmt::format("a step is planned while {} are open", open.size()));
      }
      control::StepPlan plan = scheduler.plan();
      if (plan.empty()) continue;
      ++out.steps;
      open.push_back(std::move(plan));
    } else if (const auto* commit = std::get_if<record::RunCommit>(&*event)) {
      if (open.empty() || open.front().step != commit->step) {
        throw file_error(
            path, fmt::format("results of step {}, which is not the oldest that is open", commit->step));
      }
      scheduler.commit(open.front(), player.run(path, open.front(), *commit));
      open.pop_front();
    } else if (std::holds_alternative<record::RunReset>(*event)) {
      scheduler.reset_prefix_cache();
    } else if (auto* restored = std::get_if<record::RunRestore>(&*event)) {
      record::restore(scheduler.pool(), restored->nodes);
    } else {
      out.recorded = std::get<record::RunEnd>(*event).digest;
    }
  }
  out.decisions = comparison.made();
  out.digest = scheduler.digest();
  out.first_difference = comparison.difference();
  return out;
}

tl::expected<record::Replay, std::string> try_replay(const std::filesystem::path& path) {
  try {
    return replay(path);
  } catch (const Error& error) {
    return tl::unexpected(error.what());
  }
}

}  // namespace quire::sim
