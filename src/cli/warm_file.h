#pragma once

#include <filesystem>
#include <memory>

#include "backend/cpu/decoder.h"
#include "engine/engine.h"
#include "engine/prefix_file.h"
#include "formats/mapped_file.h"

namespace quire::cli {

/// A prefix cache that outlives the program: read at the start, if the file exists and was written with the
/// same model and the same settings, and written at the end.
class WarmFile final : public engine::WarmStart {
 public:
  /// `cache` must outlive it. `access`: how the file is read.
  WarmFile(std::filesystem::path path, engine::PrefixFileKey key, backend::cpu::KvCache& cache,
           formats::FileAccess access);

  std::vector<record::PrefixNode> load() override;
  void fill(const std::vector<record::PrefixNode>& nodes) override;
  void save(const std::vector<record::PrefixNode>& nodes) override;

 private:
  std::filesystem::path path_;
  engine::PrefixFileKey key_;
  backend::cpu::KvCache& cache_;
  formats::FileAccess access_;
  std::unique_ptr<engine::PrefixFile> file_;  // used between load and fill
};

/// The facts that K/V depends on besides the tokens. Reads all weights, to distinguish models by them.
engine::PrefixFileKey kv_facts(const std::filesystem::path& model, const model::ModelConfig& config,
                               const backend::cpu::Decoder& decoder, DType kv, kernels::IsaLevel isa,
                               uint32_t max_positions);

}  // namespace quire::cli
