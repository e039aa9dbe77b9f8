// explain: what a recorded run decided, and why.
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "record/display_text.h"
#include "record/run_page.h"
#include "record/run_story.h"

namespace quire::cli {
namespace {

struct Options {
  std::string log;
  std::string request;
  std::string html;
  std::string steps;
  bool replay = false;
};

std::string or_dash(const std::optional<uint64_t>& number) {
  return number ? fmt::format("{}", *number) : "-";
}

std::string or_dash(const std::optional<Nanos>& time) { return time ? duration_text(*time) : "-"; }

std::string percent(uint64_t part, uint64_t whole) {
  return fmt::format("{:.0f} %",
                     whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

/// For most of its waiting: what it was for, and behind whom.
std::string main_reason(const SequenceStory& s) {
  const WaitReason reason = s.waited_most_for();
  if (reason == WaitReason::kNone) return "";
  std::string text(wait_name(reason));
  const bool names_somebody = reason == WaitReason::kOrder || reason == WaitReason::kParent;
  if (!names_somebody || s.behind.empty()) return text;
  const auto most = std::ranges::max_element(s.behind, {}, [](const auto& each) { return each.second; });
  text += fmt::format(", #{}", most->first);
  if (s.behind.size() > 1) text += fmt::format(" and {} more", s.behind.size() - 1);
  return text;
}

void print_table(const RunStory& run) {
  constexpr std::string_view kRow =
      "{:>6}  {:>7} {:>6} {:>7}  {:>7} {:>7}  {:>7} {:>7}  {:>8} {:>8}  {:>7} {:>6}  {:<8} {}\n";
  fmt::print(kRow, "", "prompt", "of it", "tokens", "came", "ended", "steps", "steps", "first", "", "preemp-",
             "again", "ended", "waited most for");
  fmt::print(kRow, "id", "tokens", "cached", "made", "after", "in step", "queued", "waited", "token", "total",
             "tions", "tokens", "by", "");
  for (const SequenceStory& s : run.sequences) {
    fmt::print(kRow, s.id, s.prompt_tokens, s.hit_tokens, s.generated, s.arrived, or_dash(s.ended), s.queued,
               s.steps_waited(), or_dash(s.ttft), or_dash(s.total), s.preemptions, s.again_tokens,
               end_name(s), main_reason(s));
  }
}

/// The one in the middle, and the one that 99 of 100 do not exceed.
std::string middle_and_tail(std::vector<Nanos> times) {
  std::ranges::sort(times);
  return fmt::format("median {}, 99 % within {}", duration_text(times[(times.size() - 1) / 2]),
                     duration_text(times[(times.size() * 99 + 99) / 100 - 1]));
}

/// What the steps of waiting of all sequences were for, the most first.
std::string waiting_text(const std::map<WaitReason, uint64_t>& waited) {
  std::vector<std::pair<WaitReason, uint64_t>> sorted(waited.begin(), waited.end());
  std::ranges::stable_sort(sorted, std::ranges::greater{}, [](const auto& each) { return each.second; });
  uint64_t all = 0;
  for (const auto& [reason, steps] : sorted) all += steps;
  if (all == 0) return "none";
  std::string text = fmt::format("{} steps of all sequences together:", with_commas(all));
  for (const auto& [reason, steps] : sorted) {
    text += fmt::format("{} {} for {}", &steps == &sorted.front().second ? "" : ",", percent(steps, all),
                        wait_name(reason));
  }
  return text;
}

void print_end(const RunStory& run) {
  if (run.ended_well()) return;
  fmt::print("The log ends before the run did: {}\n",
             run.truncated ? "within a record, so its program was killed, or the file was cut off"
                           : "its program still runs, or was killed");
}

void print_run(const RunStory& run) {
  print_table(run);
  uint64_t prompt = 0;
  uint64_t hit = 0;
  uint64_t generated = 0;
  uint64_t preemptions = 0;
  uint64_t again = 0;
  uint64_t moved = 0;
  uint64_t coming_back = 0;
  std::map<WaitReason, uint64_t> waited;
  std::vector<Nanos> first_tokens;
  for (const SequenceStory& s : run.sequences) {
    prompt += s.prompt_tokens;
    hit += s.hit_tokens;
    generated += s.generated;
    preemptions += s.preemptions;
    again += s.again_tokens;
    moved += s.swapped_out;
    coming_back += s.steps_waited() - s.queued;
    for (const auto& [reason, steps] : s.waited) waited[reason] += steps;
    if (s.ttft) first_tokens.push_back(*s.ttft);
  }
  const SchedulerConfig& config = run.config;
  fmt::print("\n{} sequences, {} steps, {}\n", with_commas(run.sequences.size()), with_commas(run.steps),
             duration_text(run.duration));
  fmt::print("tokens       {} of prompts ({} found in the prefix cache), {} generated\n", with_commas(prompt),
             percent(hit, prompt), with_commas(generated));
  if (!first_tokens.empty()) fmt::print("first token  {}\n", middle_and_tail(first_tokens));
  fmt::print("blocks       at most {} of {} held ({}), {} evictions, {} copies\n",
             with_commas(run.most_blocks_held), with_commas(config.num_blocks),
             percent(run.most_blocks_held, config.num_blocks), with_commas(run.evictions),
             with_commas(run.copies));
  if (run.restored > 0) {
    fmt::print("restored     the run began with {} blocks of the prefix cache\n", with_commas(run.restored));
  }
  fmt::print("waiting      {}\n", waiting_text(waited));
  fmt::print("preemptions  {}", with_commas(preemptions));
  if (preemptions > 0) {
    fmt::print(": {} steps waited to come back, {} tokens computed again, {} blocks moved to the host",
               with_commas(coming_back), with_commas(again), with_commas(moved));
  }
  fmt::print("\n");
  fmt::print("policies     scheduling {}, batching {}, victim {}, eviction {}, preemption {}\n",
             kSchedulingNames[static_cast<size_t>(config.scheduling)],
             kBatchingNames[static_cast<size_t>(config.batching)],
             kVictimNames[static_cast<size_t>(config.victim)],
             kEvictionNames[static_cast<size_t>(config.eviction)],
             kPreemptionNames[static_cast<size_t>(config.preemption)]);
  print_end(run);
}

/// `what` in a column of its own, the text beside it in lines that a terminal shows whole.
void print_wrapped(std::string_view what, std::string_view text) {
  constexpr size_t kColumn = 16;
  constexpr size_t kWidth = 100 - kColumn - 2;
  std::string first(what);
  do {
    size_t end = text.size() <= kWidth ? text.size() : text.rfind(' ', kWidth);
    if (end == std::string_view::npos) end = text.size();
    fmt::print("  {:<{}}{}\n", first, kColumn, text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    first.clear();
  } while (!text.empty());
}

void print_story(const SequenceStory& s) {
  fmt::print("request {}{}{}\n", s.id, s.name.empty() ? "" : fmt::format(" ({})", printable(s.name)),
             s.fork_of ? fmt::format(", a fork of {}", *s.fork_of) : "");
  for (const StoryLine& line : s.lines) {
    const bool one = line.from == line.to;
    const std::string when = line.to == 0 ? "at the start"
                             : one        ? fmt::format("step {}", line.from)
                                          : fmt::format("steps {}-{}", line.from, line.to);
    print_wrapped(when, line.text);
  }
  if (!s.refused.empty()) {
    fmt::print("  refused: {}\n", s.refused);
    return;
  }
  fmt::print("in all\n");
  std::string reasons;
  for (const auto& [reason, steps] : s.waited) {
    reasons += fmt::format("{}{} for {}", reasons.empty() ? ": " : ", ", steps, wait_name(reason));
  }
  print_wrapped("waited",
                fmt::format("{} step{}{}", s.steps_waited(), s.steps_waited() == 1 ? "" : "s", reasons));
  if (s.preemptions > 0) {
    const uint64_t back = s.steps_waited() - s.queued;
    print_wrapped(
        "preempted",
        fmt::format("{}, and waited {} step{} to come back; of {} tokens whose K/V it lost, {} were found in "
                    "the prefix cache, {} moved back from the host, {} computed again",
                    s.preemptions == 1 ? "once" : fmt::format("{} times", s.preemptions), back,
                    back == 1 ? "" : "s", s.lost_tokens, s.found_tokens, s.returned_tokens, s.again_tokens));
  }
  print_wrapped("first token", s.ttft ? "after " + duration_text(*s.ttft) : "none");
  print_wrapped("ended", s.total ? fmt::format("after {}, by: {}", duration_text(*s.total), end_name(s))
                                 : "not within the log");
}

void print_request(const Options& options) {
  const RunStory run = tell_run(
      options.log, [&](SeqId id, std::string_view name) { return is_called(id, name, options.request); });
  bool found = false;
  for (const SequenceStory& s : run.sequences) {
    if (!is_called(s.id, s.name, options.request)) continue;
    if (std::exchange(found, true)) fmt::print("\n");
    print_story(s);
  }
  if (!found) {
    throw Error(run.sequences.empty()
                    ? "--request: the log has no request"
                    : fmt::format("--request: the log has no {} (it has {} to {}, or their names)",
                                  printable(options.request), run.sequences.front().id,
                                  run.sequences.back().id));
  }
  print_end(run);
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

/// "100-900", "100-", "-900" or "100".
void parse_steps(const std::string& text, PageOptions& page) {
  const auto number = [&](std::string_view digits) -> std::optional<uint64_t> {
    if (digits.empty()) return std::nullopt;
    if (digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string_view::npos) {
      throw Error(fmt::format("--steps: {} is no range of steps (FROM-TO, FROM- or -TO)", printable(text)));
    }
    return std::stoull(std::string(digits));
  };
  const size_t dash = text.find('-');
  page.first = number(std::string_view(text).substr(0, dash));
  page.last = dash == std::string::npos ? page.first : number(std::string_view(text).substr(dash + 1));
  if (page.first && page.last && *page.first > *page.last) {
    throw Error(fmt::format("--steps: {} ends before it begins", text));
  }
}

void write_page(const Options& options) {
  PageOptions wanted;
  if (!options.steps.empty()) parse_steps(options.steps, wanted);
  if (!options.request.empty()) wanted.request = options.request;
  std::error_code none;
  if (std::filesystem::equivalent(options.log, options.html, none)) {
    throw Error("--html: that is the log itself");
  }
  const Page page = make_page(options.log, wanted);
  std::ofstream out(options.html, std::ios::binary | std::ios::trunc);
  out << page.html << std::flush;
  if (!out) throw file_error(options.html, "cannot be written");
  fmt::print("{}: {}, open it in a browser\n", options.html, human_bytes(page.html.size()));
  if (page.last - page.first + 1 < page.run_steps) {
    fmt::print("it shows steps {} to {} of {}; --steps FROM-TO chooses others\n", page.first, page.last,
               page.run_steps);
  }
}

int explain(const Options& options) {
  if (options.replay) return print_replay(options.log);
  if (!options.html.empty()) {
    write_page(options);
  } else if (!options.request.empty()) {
    print_request(options);
  } else {
    print_run(tell_run(options.log));
  }
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Command& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain", "Say what a run's scheduler decided, and why");
  command->footer(
      "Without options: a table of the requests, and the numbers of the run. Steps count from 1; a request\n"
      "\"waits\" in each step in which it has come and has no slot. #7 is request 7.\n"
      "\n"
      "  quire serve MODEL --decision-log run.log ...     (end it with Ctrl-C)\n"
      "  quire explain run.log\n"
      "  quire explain run.log --request 7\n"
      "  quire explain run.log --html run.html\n");
  command->add_option("log", options->log, "What --decision-log wrote")->required()->type_name("LOG");
  auto* request =
      command
          ->add_option("--request", options->request,
                       "The life of one request: why it waited and for whom, what was preempted and "
                       "what it cost. Its number in the table, or the id of its answer")
          ->type_name("ID");
  auto* html =
      command
          ->add_option("--html", options->html,
                       "Write a page for a browser, one file without a network: every step of the run, its "
                       "blocks, requests and reasons; with --request it opens there")
          ->type_name("FILE");
  auto* steps = command
                    ->add_option("--steps", options->steps,
                                 "The steps on the page: FROM-TO. Without: all, or the first 20,000")
                    ->type_name("RANGE")
                    ->needs(html);
  command
      ->add_flag("--replay", options->replay,
                 "Make the run again from its inputs and compare every decision; exits with 1 if one differs")
      ->excludes(request)
      ->excludes(html)
      ->excludes(steps);
  command->callback([options, &run] { run = [options] { return explain(*options); }; });
}

}  // namespace quire::cli
