#include "record/run_timeline.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/file_error.h"
#include "record/display_text.h"
#include "record/step_changes.h"
#include "record/timeline_encoder.h"

namespace quire::record {
namespace {

/// Reads the run and keeps what is in the range of steps.
class Recorder final : public StepChanges {
 public:
  Recorder(uint64_t first, uint64_t last, const TimelineLimits& limits, uint64_t steps_before)
      : first_(first), last_(last), limits_(limits), steps_(steps_before) {}

  /// Results of the last steps may come after the plans of the next ones.
  bool done() const override { return steps_ > last_ && steps_ - last_ > 3; }
  size_t steps_shown() const { return columns_.began.size(); }
  uint64_t steps_read() const { return steps_; }
  RunTimeline finish(std::optional<size_t> always);

 private:
  bool watches() const override { return inside_; }
  void added(const RunAdd& add, size_t index) override;
  void begins(const RunPlan& plan, const RunState& state) override;
  void ended(const RunCommit& commit) override;
  void changes(const Change& change) override;
  void changes_host(const Change& change) override;
  void cached_before(uint32_t block) override;
  void decided(const Event& event, const LiveSequence* seq) override;
  void looks(const LiveSequence& seq, const Look& look) override;
  void plan_is_told(const RunState& state, const StepNumbers& numbers) override;
  void begin_range();
  void set_cached(uint32_t block, bool cached);
  bool is_full() const;

  uint64_t first_;
  uint64_t last_;
  TimelineLimits limits_;
  bool inside_ = false;  // the range
  bool limited_ = false;
  uint64_t steps_ = 0;
  uint32_t blocks_used_ = 0;
  uint32_t host_blocks_used_ = 0;
  BlockValues<std::vector<size_t>> held_;  // before the range, by block: its holders
  BlockValues<uint8_t> cached_;            // before the range: 1: no table holds it
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

/// Also sequences that arrive just before the first step; they may be refused or have ended by then.
void Recorder::added(const RunAdd& /*add*/, size_t index) {
  if (inside_ || steps_ + 1 == first_) seen_.insert(index);
}

void Recorder::ended(const RunCommit& commit) {
  const uint64_t at = commit.step - first_;  // later steps may have been planned since
  if (commit.step >= first_ && at < columns_.took.size()) {
    columns_.took[at] = std::max<Nanos>(0, commit.now - columns_.began[at]);
  }
}

bool Recorder::is_full() const {
  constexpr size_t kBytesEach = 5;
  const size_t entries = blocks_.list.size() + host_.list.size() + events_.list.size() + num_segments_;
  return steps_ - first_ + 1 >= limits_.steps || entries * kBytesEach + causes_.bytes() >= limits_.bytes ||
         seen_.size() >= limits_.sequences;
}

void Recorder::begins(const RunPlan& plan, const RunState& state) {
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

void Recorder::decided(const Event& event, const LiveSequence* /*seq*/) { events_.list.push_back(event); }

void Recorder::cached_before(uint32_t block) {
  blocks_used_ = std::max(blocks_used_, block + 1);
  if (steps_ < first_) set_cached(block, true);
}

void Recorder::set_cached(uint32_t block, bool cached) {
  if ((cached_.at(block) != 0) != cached) cached_[block] = cached ? 1 : 0;
}

void Recorder::changes(const Change& change) {
  blocks_used_ = std::max(blocks_used_, change.block + 1);
  if (inside_) blocks_.list.push_back(change);
  if (steps_ >= first_) return;
  if (change.kind != RunTimeline::kDrop) {
    set_cached(change.block,
               change.kind == RunTimeline::kDropToCache || change.kind == RunTimeline::kIsCached);
  }
  if (!has_seq(change.kind)) return;
  auto& holders = held_[change.block];
  if (change.kind == RunTimeline::kTake) {
    holders.push_back(change.seq);
  } else if (const auto own = std::ranges::find(holders, change.seq); own != holders.end()) {
    holders.erase(own);
  }
}

void Recorder::changes_host(const Change& change) {
  if (change.kind == RunTimeline::kTake) host_blocks_used_ = std::max(host_blocks_used_, change.block + 1);
  if (inside_) host_.list.push_back(change);
}

void Recorder::looks(const LiveSequence& seq, const Look& look) {
  if (seq.index >= segments_.size()) segments_.resize(std::max(seq.index + 1, 2 * segments_.size()));
  Segments& segments = segments_[seq.index];
  if (segments.list.empty()) {
    seen_.insert(seq.index);
    segments.from = steps_;
  }
  if (!segments.list.empty() && looks_[segments.list.back().look] == look) {
    ++segments.list.back().steps;
    return;
  }
  const auto [known, is_new] = look_numbers_.try_emplace(look, static_cast<uint32_t>(looks_.size()));
  if (is_new) looks_.push_back(look);
  segments.list.push_back({.steps = 1, .look = known->second});
  ++num_segments_;
}

void Recorder::plan_is_told(const RunState& /*state*/, const StepNumbers& numbers) {
  blocks_.end_step();
  host_.end_step();
  columns_.running.push_back(numbers.running);
  columns_.waiting.push_back(numbers.waiting);
  columns_.prefill_tokens.push_back(numbers.prefill_tokens);
  columns_.decode_tokens.push_back(numbers.decode_tokens);
  columns_.held.push_back(numbers.held);
  columns_.shared.push_back(numbers.shared);
  columns_.host.push_back(numbers.host);
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
