#include "cli/warm_file.h"

#include <algorithm>
#include <utility>
#include <xxhash.h>

#include <fmt/format.h>

#include "base/log.h"
#include "cli/terminal.h"
#include "load/kept_file.h"
#include "load/mapped_file.h"

namespace quire::cli {
namespace {

/// Of the files of a directory that `is_part` of it, by name and content; or of `model`, if it is a file.
template <typename Predicate>
std::string fingerprint(const std::filesystem::path& model, Predicate is_part) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(model)) {
    for (const auto& entry : std::filesystem::directory_iterator(model)) {
      if (entry.is_regular_file() && entry.file_size() > 0 && is_part(entry.path())) files.push_back(entry);
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(model);
  }
  uint64_t hash = files.size();
  for (const auto& path : files) {
    const MappedFile file(path);
    const std::string name = path.filename().string();
    hash = XXH3_64bits_withSeed(name.data(), name.size(), hash);
    hash = XXH3_64bits_withSeed(file.data(), file.size(), hash);
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace

PrefixFileKey kv_facts(const std::filesystem::path& model, const ModelConfig& config, const Decoder& decoder,
                       DType kv, IsaLevel isa, uint32_t max_positions) {
  const auto computes = [](const std::filesystem::path& path) {
    return path.extension() == ".safetensors" || path.filename() == "config.json";
  };
  const auto tokenizes = [](const std::filesystem::path& path) {
    return path.filename().string().starts_with("tokenizer");
  };
  PrefixFileKey key{{"model", fingerprint(model, computes)},
                    {"tokenizer", fingerprint(model, tokenizes)},
                    {"dtype", dtype_name(decoder.compute_dtype())},
                    {"weights", decoder.weight_formats()},
                    {"kv_cache_dtype", dtype_name(kv)},
                    {"isa", isa_name(isa)},
                    {"kernel_version", kKernelVersion}};
  // All windows, since --sliding-window changes them; and longrope chooses its factors by the length.
  std::string windows;
  for (const uint32_t window : config.windows) windows += fmt::format("{} ", window);
  key["windows"] = windows;
  if (config.rope.scaling == RopeScaling::kLongrope) key["max_positions"] = max_positions;
  return key;
}

WarmFile::WarmFile(std::filesystem::path path, PrefixFileKey key, KvCache& cache)
    : path_(std::move(path)), key_(std::move(key)), cache_(cache) {}

std::vector<PrefixNode> WarmFile::load() {
  try {
    refuse_folder_of_others(path_);
  } catch (const Error& error) {
    log_warning(fmt::format("{} (the prefix cache will not be saved there)", error.what()));
  }
  if (!std::filesystem::exists(path_)) {
    log_info(fmt::format("{} is not there yet: the prefix cache begins empty", path_.string()));
    return {};
  }
  file_ = std::make_unique<PrefixFile>(path_, key_, cache_.block_size(), cache_.num_groups(),
                                       cache_.whole_block_bytes());
  return file_->nodes();
}

void WarmFile::fill(const std::vector<PrefixNode>& nodes) {
  if (file_ == nullptr) return;
  uint32_t filled = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t group = 0; group < nodes[i].blocks.size(); ++group) {
      if (nodes[i].blocks[group] == kNoBlock) continue;
      cache_.write_block(nodes[i].blocks[group], file_->data(file_->nodes()[i].blocks[group]));
      ++filled;
    }
  }
  log_info(fmt::format("the prefix cache begins with {} blocks of {}", with_commas(filled), path_.string()));
  if (file_->num_damaged() > 0) {
    log_warning(fmt::format("{}: {} blocks are damaged or cut off, and left out", path_.string(),
                            with_commas(file_->num_damaged())));
  }
  file_.reset();
}

void WarmFile::save(const std::vector<PrefixNode>& nodes) {
  std::vector<std::byte> block(cache_.whole_block_bytes());
  write_prefix_file(path_, key_, cache_.block_size(), block.size(), nodes, [&](BlockId id) {
    cache_.read_block(id, block);
    return std::span<const std::byte>(block);
  });
  log_info(fmt::format("the prefix cache is in {}", path_.string()));
}

}  // namespace quire::cli
