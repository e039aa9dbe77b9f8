#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "backend/backend.h"
#include "engine/engine.h"
#include "engine/prefix_file.h"
#include "formats/mapped_file.h"
#include "model/config.h"

namespace quire::startup {

/// A prefix cache that outlives the program: read at the start, if the file exists and was written with the
/// same model and the same settings, and written at the end, unless nothing is cached then.
class WarmFile final : public engine::WarmStart {
 public:
  /// `backend`, in which the blocks are, must outlive it. `access`: how the file is read.
  WarmFile(std::filesystem::path path, engine::PrefixFileKey key, uint32_t block_size,
           backend::Backend& backend, formats::FileAccess access);

  std::vector<record::PrefixNode> load() override;
  void fill(const std::vector<record::PrefixNode>& nodes) override;
  void save(const std::vector<record::PrefixNode>& nodes) override;

 private:
  std::filesystem::path path_;
  engine::PrefixFileKey key_;
  uint32_t block_size_;
  backend::Backend& backend_;
  formats::FileAccess access_;
  std::unique_ptr<engine::PrefixFile> file_;  // used between load and fill
};

/// The facts that K/V depends on besides the tokens: those of the device, the model and its config. Reads all
/// weights, to distinguish models by them. `max_positions`: see DecoderOptions.
engine::PrefixFileKey prefix_file_key(const backend::Backend& backend, const std::filesystem::path& model,
                                      const model::ModelConfig& config, uint32_t max_positions);

}  // namespace quire::startup
