#pragma once

#include <cstdint>

namespace quire::cli {

/// Raises the number of files that the process may have open to the hard limit (ulimit -Hn), and returns that
/// number.
uint64_t raise_open_files();

}  // namespace quire::cli
