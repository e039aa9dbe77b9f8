#include "engine/step_trace.h"

#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace quire::engine {

namespace {

constexpr size_t kFlushAbove = size_t{1} << 14;
constexpr FileKind kKind{"step trace", "{\"step\":"};

}  // namespace

StepTrace::StepTrace(const std::filesystem::path& path)
    : out_(path, kKind),
      warning_(path.string() + ": cannot be written any more: the step trace is cut off") {}

void StepTrace::check_place(const std::filesystem::path& path) { check_private_file(path, kKind); }

void StepTrace::write(Nanos started, const control::StepStats& stats, const control::PhaseTimes& times,
                      Nanos plan_time, Nanos commit_time) noexcept {
  if (failed_) return;
  const size_t begin = buffer_.size();
  try {
    append(started, stats, times, plan_time, commit_time);
  } catch (...) {
    buffer_.resize(begin);
    flush();
    return cut_off();
  }
  if (buffer_.size() > kFlushAbove) flush();
}

void StepTrace::append(Nanos started, const control::StepStats& s, const control::PhaseTimes& times,
                       Nanos plan_time, Nanos commit_time) {
  const size_t begin = buffer_.size();
  const auto add = [&](std::string_view name, auto value) {
    fmt::format_to(std::back_inserter(buffer_), "{}\"{}\":{}", buffer_.size() == begin ? '{' : ',', name,
                   value);
  };
  add("step", s.step);
  add("now", started);
  add("token_budget", s.token_budget);
  add("running", s.running);
  add("waiting", s.waiting);
  add("prefill_tokens", s.prefill_tokens);
  add("decode_tokens", s.decode_tokens);
  add("admitted", s.admitted);
  add("preempted", s.preempted);
  add("finished", s.finished);
  add("blocks_total", s.blocks_total);
  add("blocks_referenced", s.blocks_referenced);
  add("blocks_cached", s.blocks_cached);
  add("blocks_shared", s.blocks_shared);
  add("blocks_saved", s.blocks_saved);
  add("slots_unused", s.slots_unused);
  add("copies", s.copies);
  add("swapped_out", s.swapped_out);
  add("swapped_in", s.swapped_in);
  add("host_blocks_used", s.host_blocks_used);
  add("total_preemptions", s.total_preemptions);
  add("total_prefix_queried_tokens", s.total_prefix_queried_tokens);
  add("total_prefix_hit_tokens", s.total_prefix_hit_tokens);
  add("total_evictions", s.total_evictions);
  add("plan", plan_time);
  add("compute", times.compute);
  add("sample", times.sample);
  add("commit", commit_time);
  buffer_ += "}\n";
}

void StepTrace::flush() noexcept {
  if (!failed_ && !out_.write(buffer_)) cut_off();
  buffer_.clear();
}

/// Stops writing.
void StepTrace::cut_off() noexcept {
  if (!std::exchange(failed_, true)) log_warning(warning_);
}

}  // namespace quire::engine
