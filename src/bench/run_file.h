#pragma once

#include <filesystem>

#include "bench/run_data.h"

namespace quire::bench {

/// Reads what `bench serve --json` or `simulate --json` wrote of one run. Throws Error naming the file, and
/// the key, record or byte that is wrong; also if the file is larger than json.h allows, or is another of
/// quire's JSON files.
RunData read_run(const std::filesystem::path& path);

}  // namespace quire::bench
