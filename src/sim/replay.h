#pragma once

#include <filesystem>
#include <string>

#include <tl/expected.hpp>

#include "record/replay.h"

namespace quire::sim {

/// Makes a recorded run again from its inputs alone, on a fresh scheduler, over a SimExecutor that says the
/// recorded tokens and checks every plan; compares its decisions with the recorded ones, and ends where the
/// first differs. Throws Error if the file is broken, its inputs do not fit each other, or its first line
/// says a pool or slots far beyond what so long a file can tell of.
record::Replay replay(const std::filesystem::path& path);
/// The same with the error's text instead of an Error.
tl::expected<record::Replay, std::string> try_replay(const std::filesystem::path& path);

}  // namespace quire::sim
