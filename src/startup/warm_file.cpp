#include "startup/warm_file.h"

#include <algorithm>
#include <fstream>
#include <new>
#include <string>
#include <utility>
#include <vector>
#include <xxhash.h>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/file_error.h"
#include "base/log.h"
#include "formats/kept_file.h"

namespace quire::startup {
namespace {

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

/// The XXH3 of a file's bytes. Read and not mapped: it may be as long as memory, or shrink meanwhile.
uint64_t hash_of(const std::filesystem::path& path, uint64_t seed) {
  const std::unique_ptr<XXH3_state_t, FreeHash> state(XXH3_createState());
  if (state == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset_withSeed(state.get(), seed);
  std::ifstream in(path, std::ios::binary);
  std::vector<char> part(size_t{1} << 20);
  while (in.good()) {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    XXH3_64bits_update(state.get(), part.data(), static_cast<size_t>(in.gcount()));
  }
  if (!in.eof()) throw file_error(path, "cannot be read");
  return XXH3_64bits_digest(state.get());
}

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
    const std::string name = path.filename().string();
    hash = XXH3_64bits_withSeed(name.data(), name.size(), hash);
    hash = hash_of(path, hash);
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace

engine::PrefixFileKey prefix_file_key(const backend::Backend& backend, const std::filesystem::path& model,
                                      const model::ModelConfig& config, uint32_t max_positions) {
  const auto computes = [](const std::filesystem::path& path) {
    return path.extension() == ".safetensors" || path.filename() == "config.json";
  };
  const auto tokenizes = [](const std::filesystem::path& path) {
    return path.filename().string().starts_with("tokenizer");
  };
  engine::PrefixFileKey key = backend.kv_facts();
  key["model"] = fingerprint(model, computes);
  key["tokenizer"] = fingerprint(model, tokenizes);
  // All windows, since --sliding-window changes them; and longrope chooses its factors by the length.
  std::string windows;
  for (const uint32_t window : config.windows) windows += fmt::format("{} ", window);
  key["windows"] = windows;
  if (config.rope.scaling == model::RopeScaling::kLongrope) key["max_positions"] = max_positions;
  return key;
}

WarmFile::WarmFile(std::filesystem::path path, engine::PrefixFileKey key, uint32_t block_size,
                   backend::Backend& backend, formats::FileAccess access)
    : path_(std::move(path)),
      key_(std::move(key)),
      block_size_(block_size),
      backend_(backend),
      access_(access) {}

std::vector<record::PrefixNode> WarmFile::load() {
  try {
    formats::refuse_folder_of_others(path_);
  } catch (const Error& error) {
    log_warning(fmt::format("{} (the prefix cache will not be saved there)", error.what()));
  }
  if (!std::filesystem::exists(path_)) {
    log_info(fmt::format("{} does not exist yet: the prefix cache starts empty", path_.string()));
    return {};
  }
  const backend::ModelShape& shape = backend_.shape();
  file_ = std::make_unique<engine::PrefixFile>(path_, key_, block_size_,
                                               static_cast<uint32_t>(shape.kv_windows.size()),
                                               shape.kv_block_bytes(block_size_), access_);
  return file_->nodes();
}

void WarmFile::fill(const std::vector<record::PrefixNode>& nodes) {
  if (file_ == nullptr) return;
  uint32_t filled = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t group = 0; group < nodes[i].blocks.size(); ++group) {
      if (nodes[i].blocks[group] == kNoBlock) continue;
      backend_.write_block(nodes[i].blocks[group], file_->data(file_->nodes()[i].blocks[group]));
      ++filled;
    }
  }
  log_info(fmt::format("the prefix cache starts with {} blocks of {}", with_commas(filled), path_.string()));
  if (file_->num_damaged() > 0) {
    log_warning(fmt::format("{}: {} blocks are damaged or cut off, and left out", path_.string(),
                            with_commas(file_->num_damaged())));
  }
  file_.reset();
}

void WarmFile::save(const std::vector<record::PrefixNode>& nodes) {
  if (nodes.empty() && std::filesystem::exists(path_)) {
    log_info(fmt::format("{} stays as it is: nothing is cached", path_.string()));
    return;
  }
  std::vector<std::byte> block(backend_.shape().kv_block_bytes(block_size_));
  engine::write_prefix_file(path_, key_, block_size_, block.size(), nodes, [&](BlockId id) {
    backend_.read_block(id, block);
    return std::span<const std::byte>(block);
  });
  log_info(fmt::format("the prefix cache is in {}", path_.string()));
}

}  // namespace quire::startup
