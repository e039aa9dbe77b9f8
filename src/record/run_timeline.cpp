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
#include "record/leb128.h"
#include "record/seq_map.h"

namespace quire::record {
namespace {

constexpr size_t kNoSequence = SIZE_MAX;
constexpr uint32_t kNoneAhead = UINT32_MAX;

/// A change of a pool; sequences by their number in the whole run, until it is encoded.
struct Change {
  uint32_t block = 0;
  RunTimeline::BlockChange kind = RunTimeline::kTake;
  size_t seq = 0;
};

/// The changes of a pool, cut into steps.
struct Changes {
  std::vector<Change> list;
  std::vector<size_t> ends;  // of each step, in the list
  void end_step() { ends.push_back(list.size()); }
};

struct Event {
  control::DecisionKind kind = control::DecisionKind::kAdd;
  uint32_t a = 0;
  uint32_t b = 0;
  size_t seq = kNoSequence;
  uint32_t cause = 0;  // of a preemption: the number of its sentence
};

/// The state of a sequence in a step.
struct Look {
  Phase phase = Phase::kQueued;
  control::WaitReason waits = control::WaitReason::kNone;
  uint32_t behind = kNoneAhead;
  uint32_t cause = 0;  // with kOrder: the number of its sentence
  bool operator==(const Look&) const = default;
};
struct LookHash {
  size_t operator()(const Look& look) const {
    const uint64_t kind = static_cast<uint64_t>(look.phase) * 16 + static_cast<uint64_t>(look.waits);
    return std::hash<uint64_t>{}((kind << 57U) ^ (uint64_t{look.behind} << 25U) ^ look.cause);
  }
};

/// Equal steps of a sequence. Small, because a run in which the first in line changes has as many of them as
/// steps times waiting sequences.
struct Segment {
  uint32_t steps = 0;
  uint32_t look = 0;  // in looks_
};
/// Those of one sequence, in order without gaps.
struct Segments {
  uint64_t from = 0;  // step
  std::vector<Segment> list;
};

bool has_seq(RunTimeline::BlockChange kind) { return kind <= RunTimeline::kDropToCache; }

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
  void count_cached(RunTimeline& out) const;
  std::string encode(const Changes& changes) const;
  std::string encode_events() const;
  std::string encode_segments(const Segments& segments) const;
  uint64_t number(size_t seq) const;

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
  std::vector<Event> events_;
  std::vector<size_t> event_ends_;  // of each step
  std::vector<Segments> segments_;  // by sequence
  std::set<size_t> seen_;
  size_t num_segments_ = 0;
  std::vector<Look> looks_;  // each once
  std::unordered_map<Look, uint32_t, LookHash> look_numbers_;
  StepColumns columns_;
  std::vector<size_t> numbers_;  // of seen_, ascending
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
  const size_t entries = blocks_.list.size() + host_.list.size() + events_.size() + num_segments_;
  return steps_ - first_ + 1 >= limits_.steps || entries * kBytesEach + causes_.bytes() >= limits_.bytes ||
         seen_.size() >= limits_.sequences;
}

void Recorder::begin_step(const RunPlan& plan, const RunState& state) {
  if (inside_) event_ends_.push_back(events_.size());
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
  events_.push_back(event);
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

// ---- encoding ----

uint64_t Recorder::number(size_t seq) const {
  return static_cast<uint64_t>(std::ranges::lower_bound(numbers_, seq) - numbers_.begin());
}

std::string Recorder::encode(const Changes& changes) const {
  std::string out;
  size_t at = 0;
  for (const size_t end : changes.ends) {
    const auto step = std::span(changes.list).subspan(at, end - at);
    append_leb128(out, step.size());
    int64_t block = 0;
    int64_t seq = 0;
    for (const Change& change : step) {
      append_leb128(out, change.kind);
      append_leb128(out, zigzag(int64_t{change.block} - std::exchange(block, change.block)));
      if (!has_seq(change.kind)) continue;
      const auto own = static_cast<int64_t>(number(change.seq));
      append_leb128(out, zigzag(own - std::exchange(seq, own)));
    }
    at = end;
  }
  return out;
}

std::string Recorder::encode_events() const {
  std::string out;
  size_t at = 0;
  for (const size_t end : event_ends_) {
    append_leb128(out, end - at);
    for (; at < end; ++at) {
      const Event& event = events_[at];
      append_leb128(out, static_cast<uint64_t>(event.kind));
      append_leb128(out, event.seq == kNoSequence ? 0 : number(event.seq) + 1);
      append_leb128(out, event.a);
      append_leb128(out, event.b);
      append_leb128(out, event.cause);
    }
  }
  return out;
}

std::string Recorder::encode_segments(const Segments& segments) const {
  std::string out;
  if (segments.list.empty()) return out;
  append_leb128(out, segments.from);
  for (const Segment& each : segments.list) {
    const Look& look = looks_[each.look];
    append_leb128(out, static_cast<uint64_t>(look.phase) + 8 * static_cast<uint64_t>(look.waits));
    append_leb128(out, look.behind == kNoneAhead ? 0 : number(look.behind) + 1);
    append_leb128(out, look.cause);
    append_leb128(out, each.steps);
  }
  return out;
}

void Recorder::count_cached(RunTimeline& out) const {
  int64_t cached = 0;
  std::unordered_map<uint32_t, bool> is_cached;
  size_t at = 0;
  for (size_t step = 0; step < out.columns.began.size() && step < blocks_.ends.size(); ++step) {
    for (; at < blocks_.ends[step]; ++at) {
      const Change& change = blocks_.list[at];
      const bool now = change.kind == RunTimeline::kDropToCache || change.kind == RunTimeline::kIsCached;
      const bool was = std::exchange(is_cached[change.block], now);
      cached += (now ? 1 : 0) - (was ? 1 : 0);
    }
    out.columns.cached.push_back(static_cast<uint32_t>(cached));
  }
}

RunTimeline Recorder::finish(std::optional<size_t> always) {
  if (inside_) {
    event_ends_.push_back(events_.size());
    blocks_.end_step();
    host_.end_step();
    last_ = steps_;
  }
  for (const Change& change : blocks_.list) {
    if (has_seq(change.kind)) seen_.insert(change.seq);
  }
  for (const Event& event : events_) {
    if (event.seq != kNoSequence) seen_.insert(event.seq);
  }
  if (always) seen_.insert(*always);
  numbers_.assign(seen_.begin(), seen_.end());
  if (!numbers_.empty()) segments_.resize(std::max(segments_.size(), numbers_.back() + 1));

  RunTimeline out;
  out.first = first_;
  out.last = last_;
  out.limited = limited_;
  out.blocks_used = blocks_used_;
  out.host_blocks_used = host_blocks_used_;
  out.sequences = numbers_;
  for (const size_t seq : numbers_) {
    out.segments.push_back(encode_segments(segments_[seq]));
    segments_[seq] = {};
  }
  out.columns = std::move(columns_);
  count_cached(out);
  out.causes = causes_.take_all();
  out.events = encode_events();
  out.blocks = encode(blocks_);
  out.host = encode(host_);
  return out;
}

/// Lets two listeners follow one run; the first may be done before its end.
class Both final : public RunListener {
 public:
  Both(RunListener& first, RunListener& second) : first_(first), second_(second) {}

  void before(const RunEvent& event, const RunState& state) override {
    listens_ = !first_.done();
    if (listens_) first_.before(event, state);
    second_.before(event, state);
  }
  void after(const RunEvent& event, const RunState& state) override {
    if (listens_) first_.after(event, state);
    second_.after(event, state);
  }
  void planned(const RunState& state) override {
    if (listens_) first_.planned(state);
    second_.planned(state);
  }

 private:
  RunListener& first_;
  RunListener& second_;
  bool listens_ = true;
};

}  // namespace

RunTimeline read_timeline(RunReader& reader, uint64_t first, uint64_t last, const TimelineLimits& limits,
                          std::optional<size_t> always, RunListener* also) {
  const uint64_t before = reader.steps_before();
  Recorder recorder(std::max<uint64_t>(first, before + 1), last, limits, before);
  if (also == nullptr) {
    follow_run(reader, recorder);
  } else {
    Both both(recorder, *also);
    follow_run(reader, both);
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
