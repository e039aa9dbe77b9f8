#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "record/run_index.h"
#include "record/run_story.h"

namespace quire::record {

/// A line of the summary of a run.
struct SummaryLine {
  std::string what;
  std::string text;
};

/// What matters in a run, the verdict on its pool first.
std::vector<SummaryLine> summarize(const RunStory& run);

/// What of the specs the run's policies go by, or its requests were given.
struct GivenToRequests {
  bool tenants = false;
  bool priorities = false;
  bool deadlines = false;
};
GivenToRequests given_to_requests(const RunStory& run);

/// For most of its waiting: what it was for, and behind whom. "blocks, behind #71 (+6)"; "" if it never
/// waited.
std::string main_reason(const RunStory& run, const SequenceStory& sequence);

/// "The log ends before the run did: ..."; "" if it does not.
std::string early_end_text(const RunStory& run);

/// "no request 1 in this log (36 requests, ids 0-58 with gaps; ...)".
std::string no_such_request_text(const RunIndex& run, std::string_view request);

/// Whether a sequence is the one that a user calls `request`: by its number (7 or #7) or by its name.
bool is_called(SeqId id, std::string_view name, std::string_view request);

}  // namespace quire::record
