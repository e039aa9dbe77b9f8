#pragma once

#include <filesystem>
#include <memory>

#include "formats/checkpoint.h"

namespace quire::formats {

/// The weights of a GGUF file by their Hugging Face names. Throws Error with file and offset, key or tensor.
std::unique_ptr<Checkpoint> open_gguf_checkpoint(const std::filesystem::path& file, FileAccess access);

}  // namespace quire::formats
