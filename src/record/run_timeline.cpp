#include "record/run_timeline.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/file_error.h"
#include "record/cause_sentences.h"
#include "record/display_text.h"
#include "record/seq_map.h"
#include "record/timeline_encoder.h"

namespace quire::record {
namespace {

/// Reads the run and keeps what is in the range of steps.
class Recorder final : public RunListener {
 public:
  Recorder(uint64_t first, uint64_t last, const TimelineLimits& limits, uint64_t steps_before)
      : first_(first), last_(last), limits_(limits), steps_(steps_before) {}

  void before(const RunEvent& event, const RunState& state) override;
  void after(const RunEvent& event, const RunState& state) override;
  void planned(const RunState& state) override;
  /// Results of the last steps may come after the plans of the next ones.
  bool done() const override { return steps_ > last_ && steps_ - last_ > 3; }
  size_t steps_shown() const { return columns_.began.size(); }
  uint64_t steps_read() const { return steps_; }
  RunTimeline finish(std::optional<size_t> always);

 private:
  void begin_step(const RunPlan& plan, const RunState& state);
  void begin_range();
  void decide(const control::Decision& decision, const RunState& state);
  void change_block(const control::Decision& decision, const RunState& state);
  void release(const control::Decision& decision, const RunState& state);
  void take_cached(BlockId block);
  void set_cached(uint32_t block, bool cached);
  void free_host(const LiveSequence* seq);
  bool is_full() const;

  uint64_t first_;
  uint64_t last_;
  TimelineLimits limits_;
  bool inside_ = false;  // the range
  bool limited_ = false;
  uint64_t steps_ = 0;
  size_t num_added_ = 0;
  uint32_t blocks_used_ = 0;
  uint32_t host_blocks_used_ = 0;
  size_t host_before_ = 0;  // blocks of the host pool that the decision's sequence had
  SeqMap<std::unordered_map<SeqId, size_t>> index_of_;
  BlockValues<std::vector<size_t>> held_;  // before the range, by block: its holders
  BlockValues<uint8_t> cached_;            // before the range: 1: no table holds it
  CauseSentences causes_;
  std::optional<control::Cause> victim_;  // of the next preemption
  uint32_t shared_ = 0;
  Changes blocks_;
  Changes host_;
  Events events_;
  std::vector<Segments> segments_;  // by sequence
  std::set<size_t> seen_;
  size_t num_segments_ = 0;
  std::vector<Look> looks_;  // each once
  std::unordered_map<Look, uint32_t, LookHash> look_numbers_;
  StepColumns columns_;
};

void Recorder::before(const RunEvent& event, const RunState& state) {
  if (const auto* plan = std::get_if<RunPlan>(&event)) {
    begin_step(*plan, state);
  } else if (const auto* decision = std::get_if<control::Decision>(&event)) {
    const LiveSequence* seq = state.find(decision->seq);
    host_before_ = seq == nullptr ? 0 : seq->host.size();
    decide(*decision, state);
  } else if (const auto* commit = std::get_if<RunCommit>(&event)) {
    const uint64_t at = commit->step - first_;  // later steps may have been planned since
    if (commit->step >= first_ && at < columns_.took.size()) {
      columns_.took[at] = std::max<Nanos>(0, commit->now - columns_.began[at]);
    }
  } else if (const auto* cause = std::get_if<control::Cause>(&event)) {
    if (cause->kind == control::CauseKind::kVictim) victim_ = *cause;
    const LiveSequence* seq = state.find(cause->seq);
    if (seq != nullptr) causes_.take(*cause, seq->index);
  } else if (const auto* cached = std::get_if<RunCached>(&event)) {
    for (const PrefixNode& node : cached->nodes) {
      for (const BlockId block : node.blocks) take_cached(block);
    }
  } else if (const auto* add = std::get_if<RunAdd>(&event)) {
    // Also sequences that arrive just before the first step; they may be refused or have ended by then.
    if (inside_ || steps_ + 1 == first_) seen_.insert(num_added_);
    ++num_added_;
    causes_.add(add->spec.tenant);
  }
}

void Recorder::after(const RunEvent& event, const RunState& state) {
  const auto* decision = std::get_if<control::Decision>(&event);
  if (decision == nullptr) return;
  const LiveSequence* seq = state.find(decision->seq);
  if (seq == nullptr) return;
  if (decision->kind == control::DecisionKind::kAdd) index_of_.insert_or_assign(seq->id, seq->index);
  if (decision->kind != control::DecisionKind::kSwapOut) return;
  for (const uint32_t block : std::span(seq->host).subspan(host_before_)) {
    host_blocks_used_ = std::max(host_blocks_used_, block + 1);
    if (inside_) host_.list.push_back({block, RunTimeline::kTake, seq->index});
  }
}

bool Recorder::is_full() const {
  constexpr size_t kBytesEach = 5;
  const size_t entries = blocks_.list.size() + host_.list.size() + events_.list.size() + num_segments_;
  return steps_ - first_ + 1 >= limits_.steps || entries * kBytesEach + causes_.bytes() >= limits_.bytes ||
         seen_.size() >= limits_.sequences;
}

void Recorder::begin_step(const RunPlan& plan, const RunState& state) {
  if (inside_) events_.end_step();
  if (inside_ && (steps_ == last_ || is_full())) {
    inside_ = false;
    limited_ = steps_ != last_;
    last_ = steps_;
    blocks_.end_step();
    host_.end_step();
  }
  steps_ = plan.step;
  if (steps_ == first_) {
    inside_ = true;
    begin_range();
    for (const auto& [id, seq] : state.live()) {
      for (const uint32_t block : seq.host) host_.list.push_back({block, RunTimeline::kTake, seq.index});
    }
  }
  if (!inside_) return;
  columns_.began.push_back(plan.now);
  columns_.took.push_back(0);
}

/// The state of the pool before the first step.
void Recorder::begin_range() {
  held_.for_each([&](uint32_t block, const std::vector<size_t>& holders) {
    for (const size_t seq : holders) blocks_.list.push_back({block, RunTimeline::kTake, seq});
  });
  held_ = {};
  cached_.for_each([&](uint32_t block, uint8_t cached) {
    if (cached != 0) blocks_.list.push_back({block, RunTimeline::kIsCached, kNoSequence});
  });
  cached_ = {};
}

void Recorder::decide(const control::Decision& decision, const RunState& state) {
  const LiveSequence* seq = state.find(decision.seq);
  switch (decision.kind) {
    case control::DecisionKind::kAdd:
      return;
    case control::DecisionKind::kAllocate:
    case control::DecisionKind::kShare:
    case control::DecisionKind::kRelease:
    case control::DecisionKind::kEvict:
      return change_block(decision, state);
    case control::DecisionKind::kChunk:
      if (seq != nullptr && seq->decodes()) return;
      break;
    case control::DecisionKind::kAdmit:
    case control::DecisionKind::kFinish:
      free_host(seq);
      break;
    default:
      break;
  }
  if (!inside_) return;
  Event event{decision.kind, decision.a, decision.b};
  if (seq != nullptr) event.seq = seq->index;
  if (decision.kind == control::DecisionKind::kPreempt) {
    const std::optional<control::Cause> cause = std::exchange(victim_, std::nullopt);
    if (cause) event.cause = causes_.why_preempted(*cause);
  }
  events_.list.push_back(event);
}

void Recorder::free_host(const LiveSequence* seq) {
  if (seq == nullptr || !inside_) return;
  for (const uint32_t block : seq->host) host_.list.push_back({block, RunTimeline::kDrop, seq->index});
}

/// A block that is cached when a part begins.
void Recorder::take_cached(BlockId block) {
  if (block == kNoBlock) return;
  blocks_used_ = std::max(blocks_used_, block + 1);
  set_cached(block, true);
}

void Recorder::set_cached(uint32_t block, bool cached) {
  if (steps_ < first_ && (cached_.at(block) != 0) != cached) cached_[block] = cached ? 1 : 0;
}

void Recorder::change_block(const control::Decision& decision, const RunState& state) {
  const uint32_t block = decision.a;
  const uint32_t holders = state.holders(block);
  blocks_used_ = std::max(blocks_used_, block + 1);
  if (decision.kind == control::DecisionKind::kEvict) {
    set_cached(block, false);
    if (inside_) blocks_.list.push_back({block, RunTimeline::kEvict, kNoSequence});
    return;
  }
  if (decision.kind == control::DecisionKind::kRelease) {
    if (holders > 0) release(decision, state);  // otherwise the record is damaged
    return;
  }
  set_cached(block, false);
  const size_t* found = index_of_.find(decision.seq);
  if (found == nullptr) return;
  shared_ += holders == 1 ? 1 : 0;
  if (inside_) {
    blocks_.list.push_back({block, RunTimeline::kTake, *found});
  } else if (steps_ < first_) {
    held_[block].push_back(*found);
  }
}

/// By no sequence when the prefix cache is restored: its blocks are allocated, published and released.
void Recorder::release(const control::Decision& decision, const RunState& state) {
  const uint32_t block = decision.a;
  const uint32_t holders = state.holders(block);
  const size_t* found = index_of_.find(decision.seq);
  const bool stays = holders == 1 && state.published(block);
  if (stays) set_cached(block, true);
  if (found == nullptr) {
    if (stays && inside_) blocks_.list.push_back({block, RunTimeline::kIsCached, kNoSequence});
    return;
  }
  shared_ -= holders == 2 ? 1 : 0;
  if (inside_) {
    blocks_.list.push_back({block, stays ? RunTimeline::kDropToCache : RunTimeline::kDrop, *found});
  } else if (steps_ < first_) {
    auto& of_block = held_[block];
    const auto own = std::ranges::find(of_block, *found);
    if (own != of_block.end()) of_block.erase(own);
  }
}

void Recorder::planned(const RunState& state) {
  if (!inside_) return;
  blocks_.end_step();
  host_.end_step();
  uint32_t prefill = 0;
  uint32_t decode = 0;
  const uint32_t host = state.config().num_host_blocks - state.host_blocks_free();
  const LiveSequence* first = state.first_in_line();
  for (const auto& [id, seq] : state.live()) {
    Look now{.phase = seq.phase()};
    if (now.phase == Phase::kPrefill) prefill += seq.planned;
    if (now.phase == Phase::kDecode) decode += seq.planned;
    if (!seq.running) now.waits = seq.waits;
    const LiveSequence* before = nullptr;
    if (now.waits == control::WaitReason::kOrder) before = first;
    if (now.waits == control::WaitReason::kParent && seq.parent) before = state.find(*seq.parent);
    if (now.waits == control::WaitReason::kPrefix && seq.leader) before = state.find(*seq.leader);
    if (before != nullptr) now.behind = static_cast<uint32_t>(before->index);
    if (before != nullptr && now.waits == control::WaitReason::kOrder)
      now.cause = causes_.why_behind(seq.index);
    if (seq.index >= segments_.size()) segments_.resize(std::max(seq.index + 1, 2 * segments_.size()));
    Segments& segments = segments_[seq.index];
    if (segments.list.empty()) {
      seen_.insert(seq.index);
      segments.from = steps_;
    }
    if (!segments.list.empty() && looks_[segments.list.back().look] == now) {
      ++segments.list.back().steps;
      continue;
    }
    const auto [known, is_new] = look_numbers_.try_emplace(now, static_cast<uint32_t>(looks_.size()));
    if (is_new) looks_.push_back(now);
    segments.list.push_back({.steps = 1, .look = known->second});
    ++num_segments_;
  }
  columns_.running.push_back(state.running());
  columns_.waiting.push_back(state.waiting());
  columns_.prefill_tokens.push_back(prefill);
  columns_.decode_tokens.push_back(decode);
  columns_.held.push_back(static_cast<uint32_t>(state.blocks_held()));
  columns_.shared.push_back(shared_);
  columns_.host.push_back(host);
}

RunTimeline Recorder::finish(std::optional<size_t> always) {
  if (inside_) {
    events_.end_step();
    blocks_.end_step();
    host_.end_step();
    last_ = steps_;
  }
  for (const Change& change : blocks_.list) {
    if (has_seq(change.kind)) seen_.insert(change.seq);
  }
  for (const Event& event : events_.list) {
    if (event.seq != kNoSequence) seen_.insert(event.seq);
  }
  if (always) seen_.insert(*always);
  const TimelineEncoder encoder({seen_.begin(), seen_.end()});
  if (!seen_.empty()) segments_.resize(std::max(segments_.size(), *seen_.rbegin() + 1));

  RunTimeline out;
  out.first = first_;
  out.last = last_;
  out.limited = limited_;
  out.blocks_used = blocks_used_;
  out.host_blocks_used = host_blocks_used_;
  out.sequences = encoder.sequences();
  for (const size_t seq : out.sequences) {
    out.segments.push_back(encoder.encode(segments_[seq], looks_));
    segments_[seq] = {};
  }
  out.columns = std::move(columns_);
  out.columns.cached = count_cached(blocks_);
  out.columns.cached.resize(std::min(out.columns.cached.size(), out.columns.began.size()));
  out.causes = causes_.take_all();
  out.events = encoder.encode(events_);
  out.blocks = encoder.encode(blocks_);
  out.host = encoder.encode(host_);
  return out;
}

}  // namespace

RunTimeline read_timeline(RunReader& reader, uint64_t first, uint64_t last, const TimelineLimits& limits,
                          std::optional<size_t> always, RunListener* also) {
  const uint64_t before = reader.steps_before();
  Recorder recorder(std::max<uint64_t>(first, before + 1), last, limits, before);
  if (also == nullptr) {
    follow_run(reader, recorder);
  } else {
    follow_run(reader, recorder, *also);
  }
  if (recorder.steps_shown() == 0) {
    const uint64_t steps = recorder.steps_read();  // all: it never came to the first
    if (steps == before) throw file_error(reader.path(), "the run has no step");
    throw file_error(reader.path(),
                     fmt::format("the run has {}{}, so none from {} on", plural(steps - before, "step"),
                                 before > 0 ? fmt::format(" here, the last is step {}", steps) : "", first));
  }
  return recorder.finish(always);
}

}  // namespace quire::record
