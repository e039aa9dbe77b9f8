#include "sim/event_trace.h"

#include <algorithm>
#include <array>

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <fmt/format.h>

#include "base/file_error.h"
#include "sim/report.h"

namespace quire::sim {
namespace {

// Processes of the trace.
constexpr int kDevice = 1;
constexpr int kRequests = 2;

/// Microseconds, as the format has times.
std::string trace_time(Nanos time) { return fmt::format("{}.{:03}", time / 1000, time % 1000); }

}  // namespace

const FileKind EventTrace::kKind{"trace of events of quire simulate",
                                 "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"quire simulate\""};

EventTrace::EventTrace(const std::filesystem::path& path, const Simulation& simulation)
    : path_(path), simulation_(simulation), file_(path, std::ios::binary) {
  if (!file_) throw file_error(path, "cannot be written");
  file_ << kKind.begins
        << fmt::format(",\"cost\":{}}},\"traceEvents\":[\n",
                       boost::json::serialize(boost::json::string(cost_text(simulation.executor().cost()))));
  const std::array<std::pair<int, std::string_view>, 2> names = {
      {{kDevice, "device"}, {kRequests, "requests"}}};
  for (const auto& [process, name] : names) {
    file_ << (process == kDevice ? "" : ",\n")
          << fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"{}"}}}})", process,
                         name);
  }
  put(fmt::format(R"({{"ph":"M","pid":{},"tid":1,"name":"thread_name","args":{{"name":"steps"}}}})",
                  kDevice));
}

void EventTrace::put(std::string_view event) { file_ << ",\n" << event; }

void EventTrace::step_done(Nanos began, Nanos ended) {
  const control::StepStats& of = simulation_.stats();
  const char* name = of.decode_tokens == 0 ? "prefill" : of.prefill_tokens == 0 ? "decode" : "mixed";
  put(fmt::format(
      R"({{"ph":"X","pid":{},"tid":1,"name":"{}","ts":{},"dur":{},"args":{{"step":{},"prefill_tokens":{},"decode_tokens":{},"running":{},"waiting":{}{}}}}})",
      kDevice, name, trace_time(began), trace_time(ended - began), of.step, of.prefill_tokens,
      of.decode_tokens, simulation_.step_planned().running, of.waiting,
      simulation_.step_extrapolated() ? ",\"extrapolated\":true" : ""));
  put(fmt::format(
      R"({{"ph":"C","pid":{},"name":"K/V blocks","ts":{},"args":{{"held":{},"cached":{},"free":{}}}}})",
      kDevice, trace_time(ended), of.blocks_referenced, of.blocks_cached,
      of.blocks_total - of.blocks_referenced - of.blocks_cached));
  put(fmt::format(R"({{"ph":"C","pid":{},"name":"sequences","ts":{},"args":{{"running":{},"waiting":{}}}}})",
                  kDevice, trace_time(ended), of.running, of.waiting));
}

void EventTrace::put_instant(size_t request, std::string_view name, uint32_t choice, Nanos now) {
  put(fmt::format(
      R"({{"ph":"n","cat":"request","id":{},"pid":{},"tid":1,"name":"{}","ts":{},"args":{{"choice":{}}}}})",
      request + 1, kRequests, name, trace_time(now), choice));
}

void EventTrace::preempted(size_t request, uint32_t choice, Nanos now) {
  put_instant(request, "preempted", choice, now);
}

void EventTrace::admitted_again(size_t request, uint32_t choice, Nanos now) {
  put_instant(request, "admitted again", choice, now);
}

void EventTrace::put_slice(size_t request, std::string_view name, Nanos from, Nanos to,
                           std::string_view arguments) {
  for (const bool begins : {true, false}) {
    put(fmt::format(R"({{"ph":"{}","cat":"request","id":{},"pid":{},"tid":1,"name":"{}","ts":{}{}}})",
                    begins ? 'b' : 'e', request + 1, kRequests, name, trace_time(begins ? from : to),
                    begins ? arguments : ""));
  }
}

/// Of one that was not refused and has arrived. `end`: when it ended, or now.
void EventTrace::put_request(const SimulatedRequest& asked, Nanos end) {
  const size_t request = asked.number;
  const RequestRecord& of = asked.record;
  const std::string arguments = fmt::format(
      R"(,"args":{{"number":{},"prompt_tokens":{},"cached_tokens":{},"output_tokens":{},"preemptions":{},"tenant":{},"priority":{},"finished":{}}})",
      request + 1, of.prompt_tokens, of.cached_tokens, of.output_tokens, of.preemptions, asked.request.tenant,
      asked.request.priority, of.finished >= 0);
  // The outer slice is begun before its phases and ended after them, as equal times are in the file's order.
  const auto edge = [&](char phase, Nanos at, std::string_view more) {
    put(fmt::format(R"({{"ph":"{}","cat":"request","id":{},"pid":{},"tid":1,"name":"request","ts":{}{}}})",
                    phase, request + 1, kRequests, trace_time(at), more));
  };
  edge('b', of.arrival, arguments);
  const auto until = [&](Nanos time) { return time < 0 ? end : time; };
  put_slice(request, "waiting", of.arrival, until(of.admitted), "");
  if (of.admitted >= 0) put_slice(request, "prefill", of.admitted, until(of.first_token), "");
  if (of.first_token >= 0) put_slice(request, "decode", of.first_token, end, "");
  edge('e', end, "");
}

void EventTrace::finished(const SimulatedRequest& of) { put_request(of, of.record.finished); }

void EventTrace::refused(const SimulatedRequest& of, Nanos now) {
  put(fmt::format(
      R"({{"ph":"i","s":"p","pid":{},"tid":1,"name":"refused","ts":{},"args":{{"number":{},"why":"{}"}}}})",
      kRequests, trace_time(now), of.number + 1, refusal_key(*of.record.refused)));
}

void EventTrace::unfinished(const SimulatedRequest& of, Nanos now) {
  if (of.record.arrival >= 0) put_request(of, now);
}

void EventTrace::end() {
  file_ << fmt::format("\n],\"extrapolated_steps\":{}}}\n", simulation_.executor().extrapolated());
  file_.close();
  if (file_.fail()) throw file_error(path_, "cannot be written");
}

}  // namespace quire::sim
