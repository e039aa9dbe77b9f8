#include "record/live_view.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "record/config_json.h"
#include "record/display_text.h"
#include "record/live_run.h"

namespace quire::record {
namespace {

constexpr uint64_t kGone = 255;  // the code of a look

template <typename... Args>
void add(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

std::string json_text(std::string_view text) { return json::serialize(json::value(valid_utf8(text))); }

/// The entries as a list; they end with a comma.
std::string_view listed(const std::string& entries) {
  return std::string_view(entries).substr(0, entries.size() - (entries.empty() ? 0 : 1));
}

void add_list(std::string& out, std::string_view name, std::string& entries) {
  if (entries.empty()) return;
  add(out, ",\"{}\":[{}]", name, listed(entries));
  entries.clear();
}

}  // namespace

/// The state so far: blocks are taken by their holders before the next step.
void LiveView::begin(const LiveRun& run) {
  *this = LiveView(tenant_);
  tell_start(run);
  if (run.num_groups() > 1) groups_.resize(run.state().config().num_blocks);
  for (const auto& [id, seq] : run.state().live()) {
    added(run, seq);
    for (const uint32_t block : seq.host) changes({block, RunTimeline::kTake, seq.index}, true);
  }
  run.for_each_block([&](uint32_t block, const std::vector<size_t>& holders, bool cached) {
    for (const size_t holder : holders) changes({block, RunTimeline::kTake, holder}, false);
    if (cached) changes({block, RunTimeline::kIsCached, kNoSequence}, false);
  });
}

void LiveView::tell_start(const LiveRun& run) {
  json::object config = to_json(run.state().config());
  if (tenant_) {
    for (const char* hidden : {"max_waiting", "num_host_blocks"}) config.erase(hidden);
    config["num_host_blocks"] = 0;
  }
  add(start_, "{{\"start\":{{\"config\":{},\"first\":{},\"own\":{},\"groups\":{}}}}}",
      json::serialize(config), run.next_step(), tenant_.has_value(), run.num_groups());
}

void LiveView::added(const LiveRun& run, const LiveSequence& seq) {
  const SequenceInfo& info = run.info_of(seq.index);
  if (tenant_ && info.tenant != *tenant_) return;
  const uint32_t number = num_sequences_++;
  own_[seq.index] = {.number = number, .look = {}};
  add(requests_,
      "{{\"i\":{},\"id\":\"{}\",\"name\":{},\"prompt\":{},\"max\":{},\"tenant\":\"{}\",\"priority\":{},"
      "\"arrived\":{},\"arrived_us\":{}",
      number, seq.id, json_text(info.name), seq.prompt, seq.most, run.tenant_name(info.tenant), info.priority,
      run.state().step(), info.arrived / 1000);
  if (seq.parent) {
    const LiveSequence* parent = run.state().find(*seq.parent);
    const Own* own = parent == nullptr ? nullptr : find(parent->index);
    if (own != nullptr) add(requests_, ",\"fork_of\":{}", own->number);
  }
  requests_ += "},";
}

void LiveView::begins(uint64_t step, Nanos now) {
  end_step();
  step_ = step;
  began_ = now;
  running_ = waiting_ = prefill_ = decode_ = 0;
  for (const size_t seq : over_) own_.erase(seq);
  over_.clear();
}

void LiveView::ended(uint64_t step, Nanos took) { add(took_, "{},{},", step, took / 1000); }

void LiveView::changes(const Change& change, bool host) {
  std::string& out = host ? host_ : blocks_;
  if (!has_seq(change.kind)) {
    if (change.kind == RunTimeline::kIsCached && !tenant_) placed(change.block);
    if (!tenant_) add(out, "{},{},-1,", static_cast<int>(change.kind), change.block);
    return;
  }
  const Own* own = find(change.seq);
  if (own == nullptr || (tenant_ && host)) return;
  if (change.kind == RunTimeline::kTake && !host) placed(change.block);
  const bool hides = tenant_ && change.kind == RunTimeline::kDropToCache;
  add(out, "{},{},{},", static_cast<int>(hides ? RunTimeline::kDrop : change.kind), change.block,
      own->number);
}

void LiveView::decided(const Event& event) {
  const Own* own = event.seq == kNoSequence ? nullptr : find(event.seq);
  if (own == nullptr && (tenant_ || event.seq != kNoSequence)) return;
  add(events_, "{},{},{},{},{},", static_cast<int>(event.kind), own == nullptr ? -1 : int64_t{own->number},
      event.a, event.b, tenant_ ? 0 : event.cause);
}

void LiveView::looks(const LiveSequence& seq, const Look& look) {
  const auto found = own_.find(seq.index);
  if (found == own_.end()) return;
  ++(seq.running ? running_ : waiting_);
  if (look.phase == Phase::kPrefill) prefill_ += seq.planned;
  if (look.phase == Phase::kDecode) decode_ += seq.planned;
  if (found->second.look == look) return;
  found->second.look = look;
  const int64_t behind = look.behind == kNoneAhead ? -1 : number_of(look.behind);
  add(looks_, "{},{},{},{},", found->second.number,
      static_cast<uint32_t>(look.phase) + 8 * static_cast<uint32_t>(look.waits), behind,
      behind < 0 ? 0 : look.cause);
}

/// Of those placed, the ones in another group than the reader knows.
void LiveView::tell_groups(const LiveRun& run) {
  std::string told;
  const auto is_own = [&](size_t seq) { return own_.contains(seq); };
  for (const uint32_t block : placed_) {
    if (tenant_ && std::ranges::none_of(run.holders_of(block), is_own)) continue;
    if (groups_[block] == run.group_of(block)) continue;
    groups_[block] = run.group_of(block);
    add(told, "{},{},", block, groups_[block]);
  }
  placed_.clear();
  add_list(text_, "groups", told);
}

void LiveView::plan_is_told(const LiveRun& run) {
  const PoolNumbers pool = run.pool();
  add(text_, "{{\"n\":{},\"began_us\":{},\"running\":{},\"waiting\":{},\"prefill\":{},\"decode\":{}", step_,
      began_ / 1000, running_, waiting_, prefill_, decode_);
  if (!tenant_) {
    add(text_, ",\"held\":{},\"shared\":{},\"cached\":{},\"host\":{},\"budget\":{}", pool.held, pool.shared,
        pool.cached, pool.host, pool.budget);
  }
  add_list(text_, "blocks", blocks_);
  tell_groups(run);
  add_list(text_, "host_blocks", host_);
  add_list(text_, "looks", looks_);
}

/// The sequence is not there in the picture of the next step.
void LiveView::over(const LiveSequence& seq, std::string_view how) {
  const auto found = own_.find(seq.index);
  if (found == own_.end()) return;
  if (found->second.look) add(looks_, "{},{},-1,0,", found->second.number, kGone);
  add(ended_, "{{\"i\":{},\"tokens\":{},\"text\":\"{}\"}},", found->second.number, seq.total - seq.prompt,
      how);
  over_.push_back(seq.index);
}

void LiveView::end_step() {
  if (text_.empty()) return;
  add_list(text_, "events", events_);
  steps_ += text_;
  steps_ += "},";
  text_.clear();
}

/// Nothing runs or waits: the last step is complete, and its sequences have left.
void LiveView::end_last_step(const LiveRun& run, Nanos now) {
  end_step();
  if (blocks_.empty() && host_.empty() && looks_.empty()) return;
  begins(step_, now);
  plan_is_told(run);
  text_ += ",\"after\":true";
  end_step();
}

void LiveView::take(const LiveRun& run, Nanos now, bool always, std::string& out) {
  if (run.state().live().empty()) end_last_step(run, now);
  if (!start_.empty()) add(out, "data: {}\n\n", std::exchange(start_, {}));
  std::string causes;
  for (; !tenant_ && causes_told_ < run.causes().size(); ++causes_told_) {
    causes += json_text(run.causes()[causes_told_]);
    causes += ',';
  }
  const bool news = !requests_.empty() || !steps_.empty() || !took_.empty() || !ended_.empty();
  if (!news && !always) return;
  std::string progress;
  for (const SeqId id : run.state().running_ids()) {
    const LiveSequence* seq = run.state().find(id);
    const Own* own = find(seq->index);
    if (own != nullptr) add(progress, "{},{},{},", own->number, seq->computed, seq->total);
  }
  add(out, "data: {{\"clock_us\":{}", now / 1000);
  add_list(out, "requests", requests_);
  add_list(out, "causes", causes);
  add_list(out, "steps", steps_);
  add_list(out, "took", took_);
  add_list(out, "ended", ended_);
  add_list(out, "progress", progress);
  out += "}\n\n";
}

}  // namespace quire::record
