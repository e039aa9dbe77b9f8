#include "record/run_summary.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "record/display_text.h"

namespace quire::record {
namespace {

constexpr size_t kWaitsNamed = 5;
constexpr size_t kNeededNamed = 3;

std::string percent_text(uint64_t part, uint64_t whole) {
  return fmt::format("{:.0f} %",
                     whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

/// Sums over the sequences.
struct Totals {
  uint64_t finished = 0;
  uint64_t refused = 0;
  uint64_t aborted = 0;
  uint64_t failed = 0;
  uint64_t run_on = 0;
  uint64_t prompt = 0;
  uint64_t hit = 0;
  uint64_t shared = 0;  // the same of forks
  uint64_t generated = 0;
  uint64_t preemptions = 0;
  uint64_t lost = 0;
  uint64_t again = 0;
  uint64_t moved_out = 0;
  uint64_t moved_in = 0;
  uint64_t coming_back = 0;
  uint64_t in_time = 0;
  Nanos waited_time = 0;
  StepsByReason waited;
  std::vector<Nanos> first_tokens;

  uint64_t steps_waited() const {
    uint64_t all = 0;
    for (const auto& [reason, steps] : waited) all += steps;
    return all;
  }
};

void count_end(Totals& totals, const SequenceStory& s) {
  if (!s.refused.empty()) {
    ++totals.refused;
  } else if (!s.finish) {
    ++totals.run_on;
  } else if (*s.finish == control::FinishReason::kAbort) {
    ++totals.aborted;
  } else if (*s.finish == control::FinishReason::kError) {
    ++totals.failed;
  } else {
    ++totals.finished;
  }
}

Totals add_up(const RunStory& run) {
  Totals totals;
  for (const SequenceStory& s : run.sequences) {
    count_end(totals, s);
    if (!s.refused.empty()) continue;
    totals.prompt += s.prompt_tokens;
    (s.fork_of ? totals.shared : totals.hit) += s.hit_tokens;
    totals.generated += s.generated;
    totals.preemptions += s.preemptions;
    totals.lost += s.lost_tokens;
    totals.again += s.again_tokens;
    totals.moved_out += s.swapped_out;
    totals.moved_in += s.swapped_in;
    totals.coming_back += s.steps_waited() - s.queued;
    totals.in_time += s.in_time() ? 1 : 0;
    totals.waited_time += s.waited_time;
    for (const auto& [reason, steps] : s.waited) totals.waited[reason] += steps;
    if (s.ttft) totals.first_tokens.push_back(*s.ttft);
  }
  return totals;
}

std::string requests_text(const RunStory& run, const Totals& totals) {
  std::string text =
      fmt::format("{}: {} finished, {} refused, {} aborted", plural(run.sequences.size(), "request"),
                  with_commas(totals.finished), with_commas(totals.refused), with_commas(totals.aborted));
  if (totals.failed > 0) text += fmt::format(", {} failed", with_commas(totals.failed));
  if (totals.run_on > 0) text += fmt::format(", {} not ended", with_commas(totals.run_on));
  return text + fmt::format("; {}, {}", plural(run.steps, "step"), duration_text(run.duration));
}

std::string pool_text(const RunStory& run) {
  const uint64_t places = run.steps * run.config.num_blocks;
  const std::string held =
      fmt::format("{} held in an average step, at most {} of {}", percent_text(run.blocks_held_sum, places),
                  with_commas(run.most_blocks_held), plural(run.config.num_blocks, "block"));
  if (run.short_steps == 0) {
    return "large enough: no request first in line waited for blocks, and none was preempted; " + held;
  }
  return fmt::format(
      "too small in {} of {} steps: the request first in line waited for blocks, or a request was preempted; "
      "{}",
      with_commas(run.short_steps), with_commas(run.steps), held);
}

/// Overload means that more work arrives than is done: by Little's law, if as many wait as run, a request
/// waits for as long as it runs.
std::string load_text(const RunStory& run) {
  const auto mean = [&](uint64_t sum) { return static_cast<double>(sum) / static_cast<double>(run.steps); };
  const bool overloaded = run.queue_full > 0 || (run.waiting_sum > 0 && run.waiting_sum >= run.running_sum);
  std::string text = fmt::format(
      "{}: {:.1f} ran and {:.1f} waited in an average step, at most {} waited; requests waited in {} of the "
      "steps",
      overloaded ? "overloaded" : "not overloaded", mean(run.running_sum), mean(run.waiting_sum),
      with_commas(run.most_waiting), percent_text(run.waiting_steps, run.steps));
  if (run.queue_full > 0) {
    text +=
        fmt::format("; {} refused because the queue was full",
                    run.queue_full == 1 ? "one request was" : plural(run.queue_full, "request") + " were");
  }
  return text;
}

/// The median, and the value that 99 of 100 do not exceed.
std::string middle_and_tail(std::vector<Nanos> times) {
  std::ranges::sort(times);
  return fmt::format("median {}, 99 % within {}", duration_text(times[(times.size() - 1) / 2]),
                     duration_text(times[(times.size() * 99 + 99) / 100 - 1]));
}

std::string waiting_text(const Totals& totals) {
  const uint64_t all = totals.steps_waited();
  if (all == 0) return "none";
  return fmt::format(
      "{} of all requests together ({}): {}", plural(all, "step"), duration_text(totals.waited_time),
      waited_for_text(totals.waited, [&](uint64_t steps) { return percent_text(steps, all); }));
}

/// Pointers to the sequences with the highest values of `measure`; those with 0 are omitted.
template <typename Measure>
std::vector<const SequenceStory*> those_of_most(const RunStory& run, size_t most, const Measure& measure) {
  std::vector<const SequenceStory*> out;
  for (const SequenceStory& s : run.sequences) {
    if (measure(s) > 0) out.push_back(&s);
  }
  const size_t kept = std::min(most, out.size());
  std::ranges::partial_sort(out, out.begin() + static_cast<ptrdiff_t>(kept),
                            [&](const SequenceStory* a, const SequenceStory* b) {
                              return measure(*a) != measure(*b) ? measure(*a) > measure(*b) : a < b;
                            });
  out.resize(kept);
  return out;
}

std::string longest_waits_text(const RunStory& run) {
  std::string text;
  for (const SequenceStory* s :
       those_of_most(run, kWaitsNamed, [](const auto& s) { return s.steps_waited(); })) {
    text += text.empty() ? fmt::format("#{} {}", s->id, plural(s->steps_waited(), "step"))
                         : fmt::format(", #{} {}", s->id, with_commas(s->steps_waited()));
    text += fmt::format(" ({})", duration_text(s->waited_time));
  }
  return text;
}

std::string tokens_text(const Totals& totals) {
  std::string shared;
  if (totals.shared > 0) {
    shared = fmt::format(", {} shared with another answer to the same prompt",
                         percent_text(totals.shared, totals.prompt));
  }
  return fmt::format("{} of prompts ({} found in the prefix cache{}), {} generated",
                     with_commas(totals.prompt), percent_text(totals.hit, totals.prompt), shared,
                     with_commas(totals.generated));
}

std::string preemptions_text(const Totals& totals) {
  if (totals.preemptions == 0) return "none";
  std::string text = fmt::format(
      "{}: {} waited to come back ({} of all waiting), {} of K/V given up or moved, {} of them computed "
      "again",
      with_commas(totals.preemptions), plural(totals.coming_back, "step"),
      percent_text(totals.coming_back, totals.steps_waited()), plural(totals.lost, "token"),
      with_commas(totals.again));
  if (totals.moved_out > 0) {
    text += fmt::format("; {} to the host, {} back", plural(totals.moved_out, "block"),
                        with_commas(totals.moved_in));
  }
  return text;
}

std::string worst_preemptions_text(const RunStory& run) {
  std::string text;
  for (const PreemptionStory& p : run.worst_preemptions) {
    const std::string whom = !p.needy               ? ""
                             : *p.needy == p.victim ? " for its own next token"
                                                    : fmt::format(" for #{}", *p.needy);
    text += fmt::format(
        "{}#{} at step {}{}: {} ({}){}", text.empty() ? "" : "; ", p.victim, with_commas(p.step), whom,
        plural(p.steps, "step"), duration_text(p.took),
        p.back ? fmt::format(", {} again", plural(p.again_tokens, "token")) : ", and not admitted again");
  }
  return text;
}

std::string evictions_text(const RunStory& run) {
  std::string text = plural(run.evictions, "cached block");
  if (!run.evicted_needed) return text;
  if (*run.evicted_needed == 0) return text + ", none of them needed again";
  text += fmt::format(", {} of them needed again: by ", with_commas(*run.evicted_needed));
  const auto needed = [](const SequenceStory& s) { return s.needed_evicted; };
  const auto most = those_of_most(run, kNeededNamed, needed);
  uint64_t named = 0;
  for (const SequenceStory* s : most) {
    text += fmt::format("{}#{} ({})", named == 0 ? "" : ", ", s->id, with_commas(s->needed_evicted));
    named += s->needed_evicted;
  }
  if (named < *run.evicted_needed)
    text += fmt::format(" and others ({})", with_commas(*run.evicted_needed - named));
  return text;
}

std::string policies_text(const control::SchedulerConfig& config) {
  return fmt::format("scheduling {}, batching {}, victim {}, eviction {}, preemption {}",
                     control::kSchedulingNames[static_cast<size_t>(config.scheduling)],
                     control::kBatchingNames[static_cast<size_t>(config.batching)],
                     control::kVictimNames[static_cast<size_t>(config.victim)],
                     control::kEvictionNames[static_cast<size_t>(config.eviction)],
                     control::kPreemptionNames[static_cast<size_t>(config.preemption)]);
}

}  // namespace

std::vector<SummaryLine> summarize(const RunStory& run) {
  const Totals totals = add_up(run);
  std::vector<SummaryLine> lines;
  const auto add = [&](std::string what, std::string text) {
    if (!text.empty()) lines.push_back({std::move(what), std::move(text)});
  };
  if (run.steps > 0) add("pool", pool_text(run));
  if (run.steps > 0) add("load", load_text(run));
  add("requests", requests_text(run, totals));
  add("waiting", waiting_text(totals));
  add("longest waits", longest_waits_text(run));
  add("preemptions", preemptions_text(totals));
  add("preempted", worst_preemptions_text(run));
  if (!totals.first_tokens.empty()) add("first token", middle_and_tail(totals.first_tokens));
  if (given_to_requests(run).deadlines) {
    const uint64_t taken = run.sequences.size() - totals.refused;
    add("deadlines", fmt::format("{} of {} first tokens in time ({})", with_commas(totals.in_time),
                                 with_commas(taken), percent_text(totals.in_time, taken)));
  }
  add("tokens", tokens_text(totals));
  add("evictions", evictions_text(run));
  add("copies", plural(run.copies, "copy-on-write copy", "copy-on-write copies") + " of blocks");
  if (run.restored > 0) {
    add("restored", fmt::format("the run began with {} of the prefix cache", plural(run.restored, "block")));
  }
  add("policies", policies_text(run.config));
  if (!run.warning.empty()) add("warning", printable(run.warning));
  return lines;
}

GivenToRequests given_to_requests(const RunStory& run) {
  GivenToRequests given;
  given.tenants = run.config.scheduling == control::SchedulingKind::kFair;
  given.priorities = run.config.scheduling == control::SchedulingKind::kPriority ||
                     run.config.victim == control::VictimKind::kLowestPriority;
  given.deadlines = run.config.scheduling == control::SchedulingKind::kSlo;
  const control::SeqSpec defaults;
  for (const SequenceStory& s : run.sequences) {
    given.tenants = given.tenants || s.tenant != run.sequences.front().tenant;
    given.priorities = given.priorities || s.priority != defaults.priority;
    given.deadlines = given.deadlines || s.ttft_deadline != defaults.ttft_deadline;
  }
  return given;
}

std::string_view wait_name(control::WaitReason reason) {
  switch (reason) {
    case control::WaitReason::kNone:
      break;
    case control::WaitReason::kSlots:
      return "a slot";
    case control::WaitReason::kBudget:
      return "token budget";
    case control::WaitReason::kBlocks:
    case control::WaitReason::kOrder:  // behind one that waits for blocks
      return "blocks";
    case control::WaitReason::kParent:
      return "prompt of its parent";
    case control::WaitReason::kPrefix:
      return "a prefix that another computes";
    case control::WaitReason::kPreempt:
      return "admission paused (a step preempts)";
    case control::WaitReason::kToken:
      return "a token of an open step";
    case control::WaitReason::kBatch:
      return "a static batch to end";
  }
  return "";
}

std::string main_reason(const RunStory& run, const SequenceStory& sequence) {
  const control::WaitReason reason = sequence.waited_most_for();
  const std::string_view name = wait_name(reason);
  if (reason == control::WaitReason::kSlots && sequence.overtaken > 0) {
    return fmt::format("{}, {} overtook it", name, with_commas(sequence.overtaken));
  }
  if (reason == control::WaitReason::kParent && sequence.fork_of) {
    return fmt::format("{}, #{}", name, *sequence.fork_of);
  }
  if (reason != control::WaitReason::kBlocks) return std::string(name);
  const auto behind = run.behind(sequence);
  const auto first = sequence.waited.find(control::WaitReason::kBlocks);
  const uint64_t first_in_line = first == sequence.waited.end() ? 0 : first->second;
  if (!behind || behind->steps < first_in_line) return fmt::format("{}, first in line", name);
  return fmt::format("{}, behind #{}{}", name, behind->most,
                     behind->count > 1 ? fmt::format(" (+{})", with_commas(behind->count - 1)) : "");
}

std::string late_begin_text(const RunStory& run) {
  if (run.is_single_part) {
    return fmt::format(
        "This is part {} of a log, which begins after step {}. The name of the log without the number "
        "stands for all its parts.",
        with_commas(run.first_part), with_commas(run.steps_before));
  }
  if (run.first_part == 1) return "";
  const uint64_t absent = run.first_part - 1;
  return fmt::format(
      "The log begins after step {}, at a moment without any request: {} (--decision-log-max).",
      with_commas(run.steps_before),
      absent == 1 ? "one earlier part was deleted" : plural(absent, "earlier part") + " were deleted");
}

std::string early_end_text(const RunStory& run) {
  if (run.ended_well()) return "";
  return fmt::format("The log ends before the run did, after step {}: {}.", with_commas(run.last_step()),
                     run.truncated ? "within a log block, so its program was killed, or the file was cut off"
                                   : "its program still runs, or was killed");
}

std::string no_such_request_text(const RunIndex& run, std::string_view request) {
  if (run.sequences.empty()) return "the log has no request";
  std::set<SeqId> ids;
  for (const IndexedSequence& s : run.sequences) ids.insert(s.id);
  const bool gaps = *ids.rbegin() - *ids.begin() + 1 != ids.size();
  return fmt::format("no request {} in this log ({}, ids {}-{}{})", printable(request),
                     plural(run.sequences.size(), "request"), *ids.begin(), *ids.rbegin(),
                     gaps ? " with gaps; ids of refused requests are not in it" : "");
}

bool is_called(SeqId id, std::string_view name, std::string_view request) {
  if (!name.empty() && name == request) return true;
  if (request.starts_with('#')) request.remove_prefix(1);
  return request == fmt::format("{}", id);
}

}  // namespace quire::record
