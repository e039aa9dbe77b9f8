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

/// The most important facts of a run, with the verdict on its pool first.
std::vector<SummaryLine> summarize(const RunStory& run);

/// Which fields of the specs the run's policies use, or its requests have.
struct GivenToRequests {
  bool tenants = false;
  bool priorities = false;
  bool deadlines = false;
};
GivenToRequests given_to_requests(const RunStory& run);

/// What a sequence waits for, in a word or some: "a slot"; "" for kNone.
std::string_view wait_name(control::WaitReason reason);

/// The reason for most of its waiting, and the sequences before it: "blocks, behind #71 (+6)"; "" if it never
/// waited.
std::string main_reason(const RunStory& run, const SequenceStory& sequence);

/// "The log begins after step 1,234: ..."; "" if it has its beginning.
std::string late_begin_text(const RunStory& run);

/// "The log ends before the run did: ..."; "" if it does not.
std::string early_end_text(const RunStory& run);

/// "no request 1 in this log (36 requests, ids 0-58 with gaps; ...)".
std::string no_such_request_text(const RunIndex& run, std::string_view request);

/// Whether `request` names this sequence, by its number (7 or #7) or by its name.
bool is_called(SeqId id, std::string_view name, std::string_view request);

}  // namespace quire::record
