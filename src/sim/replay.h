#pragma once

#include <filesystem>
#include <string>

#include <tl/expected.hpp>

#include "record/replay.h"

namespace quire {

/// Makes a recorded run again from its inputs alone, on a fresh scheduler, over a SimExecutor that says the
/// recorded tokens and checks every plan; compares its decisions with the recorded ones. Throws Error if the
/// file is broken or its inputs do not fit each other.
Replay replay(const std::filesystem::path& path);
/// The same with the error's text instead of an Error.
tl::expected<Replay, std::string> try_replay(const std::filesystem::path& path);

}  // namespace quire
