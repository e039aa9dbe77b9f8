#pragma once

#include <filesystem>
#include <memory>

#include "backend/cpu/decoder.h"
#include "engine/engine.h"
#include "engine/prefix_file.h"
#include "formats/mapped_file.h"

namespace quire::cli {

/// A prefix cache that outlives the program: read at the start, if it is there and was written by the same
/// model under the same settings, and written at the end.
class WarmFile final : public WarmStart {
 public:
  /// `cache` must outlive it. `access`: how the file is read.
  WarmFile(std::filesystem::path path, PrefixFileKey key, KvCache& cache, FileAccess access);

  std::vector<PrefixNode> load() override;
  void fill(const std::vector<PrefixNode>& nodes) override;
  void save(const std::vector<PrefixNode>& nodes) override;

 private:
  std::filesystem::path path_;
  PrefixFileKey key_;
  KvCache& cache_;
  FileAccess access_;
  std::unique_ptr<PrefixFile> file_;  // between load and fill
};

/// What K/V depends on beside the tokens. Reads the whole of the weights, to tell models apart by them.
PrefixFileKey kv_facts(const std::filesystem::path& model, const ModelConfig& config, const Decoder& decoder,
                       DType kv, IsaLevel isa, uint32_t max_positions);

}  // namespace quire::cli
