// explain: what a recorded run decided, and why.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "record/run_story.h"

namespace quire::cli {
namespace {

struct Options {
  std::string log;
  std::optional<uint64_t> request;
  bool replay = false;
};

std::string step_or_dash(const std::optional<uint64_t>& step) {
  return step ? fmt::format("{}", *step) : "-";
}

std::string end_of(const SequenceStory& s) {
  static constexpr const char* kEnds[] = {"stop", "length", "abort", "error"};
  if (!s.refused.empty()) return "refused";
  return s.finish ? kEnds[static_cast<size_t>(*s.finish)] : "runs on";
}

/// The reason for most of the waiting.
std::string main_reason(const SequenceStory& s) {
  const auto most = std::max_element(s.waited.begin(), s.waited.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == s.waited.end() ? "" : std::string(kWaitNames[static_cast<size_t>(most->first)]);
}

void print_run(const RunStory& run) {
  fmt::print("{:>6} {:>7} {:>6} {:>8} {:>8} {:>7} {:>7} {:>6} {:>6} {:>8} {:>8}  {}\n", "id", "prompt", "hit",
             "arrived", "admitted", "first", "tokens", "waited", "preem.", "ended", "by", "waited most for");
  for (const SequenceStory& s : run.sequences) {
    fmt::print("{:>6} {:>7} {:>6} {:>8} {:>8} {:>7} {:>7} {:>6} {:>6} {:>8} {:>8}  {}\n", s.id,
               s.prompt_tokens, s.hit_tokens, s.arrived, step_or_dash(s.admitted),
               step_or_dash(s.first_token), s.generated, s.steps_waited(), s.preemptions,
               step_or_dash(s.ended), end_of(s), main_reason(s));
  }
  uint64_t prompt = 0;
  uint64_t hit = 0;
  uint64_t generated = 0;
  uint64_t preemptions = 0;
  for (const SequenceStory& s : run.sequences) {
    prompt += s.prompt_tokens;
    hit += s.hit_tokens;
    generated += s.generated;
    preemptions += s.preemptions;
  }
  const SchedulerConfig& config = run.config;
  fmt::print(
      "\n{} sequences in {} steps: {} prompt tokens ({:.0f} % found in the prefix cache), {} generated\n",
      run.sequences.size(), run.steps, with_commas(prompt),
      prompt == 0 ? 0.0 : 100.0 * static_cast<double>(hit) / static_cast<double>(prompt),
      with_commas(generated));
  fmt::print("{} preemptions, {} evictions, {} copies, at most {} of {} blocks held; {} decisions\n",
             preemptions, run.evictions, run.copies, run.most_blocks_held, config.num_blocks,
             with_commas(run.decisions));
  fmt::print("policies: scheduling {}, batching {}, victim {}, eviction {}, preemption {}\n",
             kSchedulingNames[static_cast<size_t>(config.scheduling)],
             kBatchingNames[static_cast<size_t>(config.batching)],
             kVictimNames[static_cast<size_t>(config.victim)],
             kEvictionNames[static_cast<size_t>(config.eviction)],
             kPreemptionNames[static_cast<size_t>(config.preemption)]);
  if (run.truncated || !run.digest) fmt::print("the log ends before the run did\n");
}

void print_request(const RunStory& run, uint64_t id) {
  const auto found = std::ranges::find(run.sequences, id, &SequenceStory::id);
  if (found == run.sequences.end()) {
    throw Error(run.sequences.empty() ? "--request: the log has no request"
                                      : fmt::format("--request: there is no {} (the log has {} to {})", id,
                                                    run.sequences.front().id, run.sequences.back().id));
  }
  const SequenceStory& s = *found;
  fmt::print("request {}{}\n", s.id, s.fork_of ? fmt::format(", a further choice of {}", *s.fork_of) : "");
  for (const std::string& line : s.lines) fmt::print("  {}\n", line);
  if (!s.refused.empty()) fmt::print("  {}\n", s.refused);
  if (s.steps_waited() == 0) return;
  std::string reasons;
  for (const auto& [reason, steps] : s.waited) {
    reasons += fmt::format("{}{} for {}", reasons.empty() ? "" : ", ", steps,
                           kWaitNames[static_cast<size_t>(reason)]);
  }
  fmt::print("waited {} steps in all: {}\n", s.steps_waited(), reasons);
}

int print_replay(const std::string& log) {
  const Replay again = replay(log);
  fmt::print("{} steps, {} decisions, digest {:016x}\n", with_commas(again.steps),
             with_commas(again.decisions), again.digest);
  if (again.first_difference) {
    fmt::print("decision {} differs from the recorded one\n", *again.first_difference);
  } else if (!again.recorded) {
    fmt::print("the log ends before the run did; as far as it goes, all decisions are the same\n");
  } else {
    fmt::print("{}\n", again.same() ? "all decisions are the same" : "the recorded digest is another");
  }
  return again.first_difference || (again.recorded && !again.same()) ? 1 : 0;
}

int explain(const Options& options) {
  if (options.replay) return print_replay(options.log);
  const RunStory run = tell_run(options.log, options.request);
  if (options.request) {
    print_request(run, *options.request);
  } else {
    print_run(run);
  }
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Command& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain", "Say what a run's scheduler decided, and why");
  command->add_option("log", options->log, "What --decision-log wrote")->required()->type_name("LOG");
  auto* request =
      command->add_option("--request", options->request, "The life of this one; without: a table of all")
          ->type_name("ID");
  command
      ->add_flag("--replay", options->replay,
                 "Make the run again from its inputs and compare every decision; exits with 1 if one differs")
      ->excludes(request);
  command->callback([options, &run] { run = [options] { return explain(*options); }; });
}

}  // namespace quire::cli
