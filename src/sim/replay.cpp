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
      if (!recorded.token) out.seqs[i].token.reset();
      if (recorded.token.has_value() != out.seqs[i].token.has_value()) {
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

/// Of a log without its beginning.
record::Replay read_through(record::RunReader& reader) {
  record::Replay out{.has_beginning = false, .steps_before = reader.steps_before()};
  while (const auto event = reader.next()) {
    if (std::holds_alternative<record::RunPlan>(*event)) ++out.steps;
    if (std::holds_alternative<control::Decision>(*event)) ++out.decisions;
    if (const auto* end = std::get_if<record::RunEnd>(&*event)) out.recorded = end->digest;
  }
  return out;
}

/// A recorded run that is made again.
class SecondRun {
 public:
  explicit SecondRun(const std::filesystem::path& path)
      : path_(path), reader_(path), scheduler_(checked_sizes(reader_, path)), player_(reader_.config()) {
    scheduler_.listen(&comparison_);
  }

  record::Replay run() {
    // Behind a difference the inputs belong to another run.
    while (!comparison_.difference() && !out_.other_cache) {
      auto event = reader_.next();
      if (!event) break;
      std::visit([this](auto& of) { take(of); }, *event);
    }
    out_.decisions = comparison_.made();
    out_.digest = scheduler_.digest();
    out_.first_difference = comparison_.difference();
    return std::move(out_);
  }

 private:
  /// Before each input. False behind a difference.
  bool settle() {
    comparison_.settle();
    return !comparison_.difference();
  }

  void take(const control::Decision& decision) { comparison_.expect(decision); }
  void take(const control::Cause& /*cause*/) {}
  void take(const record::RunRefusal& /*refusal*/) {}  // what was refused then is refused again
  void take(record::RunAdd& add) {
    if (settle()) static_cast<void>(scheduler_.add(std::move(add.spec)));
  }
  void take(const record::RunAbort& abort) {
    if (settle()) scheduler_.abort(abort.id);
  }
  void take(const record::RunBudget& budget) {
    if (settle()) scheduler_.set_budget(budget.tokens);
  }
  void take(const record::RunPlan& /*plan*/) {
    if (!settle()) return;
    if (open_.size() == backend::kMostOpenSteps) {
      throw file_error(path_, fmt::format("a step is planned while {} are open", open_.size()));
    }
    ++out_.steps;
    control::StepPlan plan = scheduler_.plan();
    if (!plan.empty()) open_.push_back(std::move(plan));
  }
  void take(const record::RunCommit& commit) {
    if (!settle()) return;
    if (open_.empty() || open_.front().step != commit.step) {
      throw file_error(path_,
                       fmt::format("results of step {}, which is not the oldest that is open", commit.step));
    }
    scheduler_.commit(open_.front(), player_.run(path_, open_.front(), commit));
    open_.pop_front();
  }
  void take(const record::RunReset& /*reset*/) {
    if (settle()) scheduler_.pool().drop_cached();
  }
  void take(record::RunRestore& restored) {
    if (settle()) record::restore(scheduler_.pool(), restored.nodes);
  }
  void take(const record::RunEnd& end) {
    if (settle()) out_.recorded = end.digest;
  }
  void take(const record::RunPartEnd& end) {
    if (settle() && end.digest != scheduler_.digest()) out_.other_cache = reader_.step();
  }
  void take(const record::RunCached& cached) {
    if (scheduler_.has_work() || !open_.empty() ||
        record::snapshot(scheduler_.pool().cache()) != cached.nodes) {
      out_.other_cache = reader_.step();
    }
  }

  std::filesystem::path path_;
  record::RunReader reader_;
  control::Scheduler scheduler_;
  Player player_;
  Comparison comparison_;
  std::deque<control::StepPlan> open_;
  record::Replay out_;
};

}  // namespace

record::Replay replay(const std::filesystem::path& path) {
  record::RunReader reader(path);
  if (reader.first_part() > 1) return read_through(reader);
  return SecondRun(path).run();
}

tl::expected<record::Replay, std::string> try_replay(const std::filesystem::path& path) {
  try {
    return replay(path);
  } catch (const Error& error) {
    return tl::unexpected(error.what());
  }
}

}  // namespace quire::sim
