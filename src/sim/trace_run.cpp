#include <algorithm>
#include <map>
#include <span>
#include <variant>

#include <fmt/format.h>

#include "base/error.h"
#include "control/kv/prefix_cache.h"
#include "record/run_state.h"
#include "sim/trace_formats.h"

namespace quire::sim {
namespace {

/// Collects the requests of a decision log.
class RunRequests {
 public:
  RunRequests(TraceRequests& trace, uint32_t block_size, uint32_t most)
      : trace_(trace), block_size_(block_size), most_(most) {}

  /// `state`: before the event.
  void take(const record::RunEvent& event, const record::RunState& state) {
    if (const auto* add = std::get_if<record::RunAdd>(&event)) {
      take_add(add->spec);
    } else if (std::holds_alternative<record::RunRefusal>(event)) {
      wanted_if_refused();
    } else if (const auto* commit = std::get_if<record::RunCommit>(&event)) {
      const std::vector<record::PlannedPart>& parts = state.parts_of(*commit);
      for (size_t i = 0; i < std::min(parts.size(), commit->results.size()); ++i) {
        if (!commit->results[i].token || state.find(parts[i].id) == nullptr) continue;
        const auto at = index_of_.find(parts[i].id);
        if (at != index_of_.end()) ++trace_.requests[at->second].output_length;
      }
    }
  }
  /// How many of the requests have not ended in `state`.
  uint64_t open_in(const record::RunState& state) const {
    return static_cast<uint64_t>(std::ranges::count_if(
        index_of_, [&](const auto& request) { return state.find(request.first) != nullptr; }));
  }

 private:
  void take_add(const control::SeqSpec& spec) {
    index_of_.erase(spec.id);
    last_ = SIZE_MAX;
    if (trace_.requests.size() >= most_) return;
    last_ = trace_.requests.size();
    last_most_ = spec.max_tokens;
    index_of_[spec.id] = last_;
    SimRequest request;
    request.arrival = spec.arrived;
    request.prompt_length = static_cast<uint32_t>(spec.prompt.size());
    request.names_deadline = spec.ttft_deadline != request.ttft_deadline;
    request.ttft_deadline = spec.ttft_deadline;
    request.priority = spec.priority;
    request.tenant = tenants_.of(fmt::format("{}", spec.tenant));
    request.line = static_cast<uint32_t>(last_ + 1);
    // One number for each full block and all before it.
    uint64_t hash = mix64(spec.salt);
    const std::span<const TokenId> prompt(spec.prompt);
    for (size_t end = block_size_; end <= prompt.size(); end += block_size_) {
      hash = control::PrefixCache::xxh3(prompt.subspan(end - block_size_, block_size_), hash);
      request.pieces.push_back(hash);
    }
    trace_.requests.push_back(std::move(request));
  }
  /// A refused request would have had its answer; how long it would have been is not known.
  void wanted_if_refused() {
    if (last_ < trace_.requests.size()) trace_.requests[last_].output_length = last_most_;
  }

  TraceRequests& trace_;
  uint32_t block_size_;
  uint32_t most_;
  TenantNumbers tenants_;
  std::map<SeqId, size_t> index_of_;
  size_t last_ = SIZE_MAX;
  uint32_t last_most_ = 0;
};

}  // namespace

TraceRequests read_recorded_run(const std::filesystem::path& path, const TraceOptions& options) {
  TraceRequests trace;
  trace.has_deadlines = trace.has_priorities = trace.has_tenants = true;
  record::RunReader reader(path);
  trace.piece_length = reader.config().block_size;
  record::RunState state(reader.config(), reader.steps_before());
  RunRequests requests(trace, reader.config().block_size, options.max_requests);
  record::RunEvent event;
  bool ended = false;
  while (reader.next(event)) {
    requests.take(event, state);
    state.take(event);
    ended =
        std::holds_alternative<record::RunEnd>(event) || std::holds_alternative<record::RunPartEnd>(event);
  }
  const size_t without_answer = std::erase_if(trace.requests, [](const SimRequest& request) {
    return request.output_length == 0 || request.prompt_length == 0;
  });
  if (trace.requests.empty()) throw Error(path.string() + ": the log has no request with an answer");
  trace.notes.push_back(fmt::format(
      "{}: a recorded run: prompts share what they shared then, by blocks of {} tokens, but nothing with "
      "earlier answers",
      path.string(), trace.piece_length));
  if (const size_t open = ended ? 0 : requests.open_in(state); open > 0) {
    trace.notes.push_back(
        fmt::format("{}: the log ends before the run did: {} of its requests had not ended; an answer that "
                    "had begun is taken to be as long as it was by then",
                    path.string(), open));
  }
  if (without_answer > 0) {
    trace.notes.push_back(
        fmt::format("{}: left out {} requests without an answer", path.string(), without_answer));
  }
  return trace;
}

}  // namespace quire::sim
