#pragma once

#include <filesystem>
#include <string>

#include <tl/expected.hpp>

#include "record/replay.h"

namespace quire::sim {

/// Replays a recorded run from its inputs alone, on a fresh scheduler with a SimExecutor that gives the
/// recorded tokens and checks every plan. Compares the decisions with the recorded ones and ends at the first
/// difference. Throws Error if the file is damaged, its inputs are inconsistent, or its first line gives a
/// pool or slots far larger than a file of this length can describe.
record::Replay replay(const std::filesystem::path& path);
/// The same, but returns the text of the error instead of throwing.
tl::expected<record::Replay, std::string> try_replay(const std::filesystem::path& path);

}  // namespace quire::sim
