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
  /// Steps to show; without, from the first (or, with a request, from a little before it) as far as the
  /// limits go.
  std::optional<uint64_t> first;
  std::optional<uint64_t> last;
  /// The request to begin with: an id, or a name.
  std::optional<std::string> request;
  TimelineLimits limits;
};

/// What tells such pages from other files.
FileKind run_page_kind();

struct Page {
  std::string html;    // one file that needs no other
  uint64_t first = 0;  // the steps that it shows
  uint64_t last = 0;
  uint64_t run_steps = 0;
};

/// A recorded run as a page for a browser: the block pool over time, every step with its reasons, the
/// requests and their stories; of the request to begin with, the whole life. `again`: what replaying it gave,
/// or why that failed; told on the page. Nothing of the record is taken for HTML. Throws Error as RunReader
/// does, if the run has no such steps, or no such request.
Page make_page(const std::filesystem::path& log,
               const std::optional<tl::expected<Replay, std::string>>& again,
               const PageOptions& options = {});

}  // namespace quire::record
