#pragma once

#include <filesystem>
#include <vector>

#include "serve/auth.h"

namespace quire::serve {

/// Reads the keys of a file, one per line:
///
///     NAME:KEY
///     NAME:sha256:HEX      HEX: the SHA-256 of the key, 64 hex digits
///
/// Blank lines and lines that begin with # are skipped; spaces around a line and around its columns do not
/// count. A name is 1 to 64 letters, digits and ._@- and is shown in logs. Throws Error ("PATH: line N: WHY",
/// never with a part of a key in it) for anything else, for a name or a key that occurs twice, for a file
/// without keys or of more than 1 MiB, and for a file that all users may write. Warns of a file with unhashed
/// keys that users other than its owner may read.
std::vector<ApiKey> read_key_file(const std::filesystem::path& path);

}  // namespace quire::serve
