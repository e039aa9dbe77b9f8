#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "base/file_kind.h"
#include "record/replay.h"
#include "record/run_story.h"
#include "record/run_timeline.h"

namespace quire::record {

struct PageOptions {
  /// The steps to show; if absent, from the first step (with a request, from shortly before it) up to the
  /// limits.
  std::optional<uint64_t> first;
  std::optional<uint64_t> last;
  /// The request to show first: an id, or a name.
  std::optional<std::string> request;
  TimelineLimits limits;
};

/// The file kind of such pages.
FileKind run_page_kind();

struct Page {
  std::string html;    // one self-contained file
  uint64_t first = 0;  // the steps that it shows
  uint64_t last = 0;
  uint64_t run_steps = 0;
};

/// A recorded run as a page for a browser: the block pool over time, every step with its reasons, the
/// requests and their stories; for the request to show first, its whole life. `again`: the result of the
/// replay, or why it failed; shown on the page. Text from the record is never interpreted as HTML. Throws
/// Error as RunReader does, or if the run has no such steps or no such request.
Page make_page(const std::filesystem::path& log,
               const std::optional<tl::expected<Replay, std::string>>& again,
               const PageOptions& options = {});

}  // namespace quire::record
