#include "page/files.h"

namespace quire::page {

std::span<const File> files() { return {}; }

}  // namespace quire::page
