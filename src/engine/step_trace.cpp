#include "engine/step_trace.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"

namespace quire {

StepTrace::StepTrace(const std::filesystem::path& path)
    : path_(path), out_(path, std::ios::binary | std::ios::trunc) {
  if (!out_) throw file_error(path, "cannot be written");
}

void StepTrace::write(Nanos started, const StepStats& s, const PhaseTimes& times, Nanos plan_time,
                      Nanos commit_time) {
  fmt::memory_buffer line;
  const auto add = [&line](std::string_view name, auto value) {
    fmt::format_to(std::back_inserter(line), "{}\"{}\":{}", line.size() == 0 ? '{' : ',', name, value);
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
  fmt::format_to(std::back_inserter(line), "}}\n");
  out_.write(line.data(), static_cast<std::streamsize>(line.size()));
  warn_if_failed();
}

void StepTrace::flush() {
  out_.flush();
  warn_if_failed();
}

void StepTrace::warn_if_failed() {
  if (out_ || std::exchange(warned_, true)) return;
  log_warning(path_.string() + ": cannot be written any more: the step trace is cut off");
}

}  // namespace quire
