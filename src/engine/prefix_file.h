#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/mapped_file.h"
#include "record/prefix_snapshot.h"

// A prefix cache as a file: one line of JSON, an index of the nodes, the K/V of their blocks, and a mark. The
// line names everything that the K/V depends on and has a checksum of the index; the index has a checksum of
// every block. The mark at the end identifies a prefix cache even if the beginning of the file is damaged.
namespace quire::engine {

/// Everything except the tokens that K/V bits depend on, as facts by name. A file can be used if all facts
/// are equal.
using PrefixFileKey = json::object;

/// Writes to a file beside `path` and renames it at the end. Only its user may read the file, since it
/// contains prompts. `read(block)` returns the K/V of a block, `block_bytes` long, valid until its next call.
/// Throws Error, also if other users may write in the folder (then the file could not be trusted), and as
/// check_prefix_file_place does.
void write_prefix_file(const std::filesystem::path& path, const PrefixFileKey& key, uint32_t block_size,
                       uint64_t block_bytes, const std::vector<record::PrefixNode>& nodes,
                       const std::function<std::span<const std::byte>(BlockId)>& read);

/// Throws Error if a prefix cache could not be written to `path` at the end, or if the file there may be
/// something else, which must not be overwritten. A prefix cache is recognized by its beginning or by its end
/// and may be overwritten, and so may a file of zeros, which a crash of the machine can leave behind.
void check_prefix_file_place(const std::filesystem::path& path);

/// A prefix cache file in memory.
class PrefixFile {
 public:
  /// Throws Error naming file and fact if it is not a prefix cache, if other users may write it, if it was
  /// written with another key or other sizes, or if its index is damaged. Damaged or missing blocks are left
  /// out.
  PrefixFile(const std::filesystem::path& path, const PrefixFileKey& key, uint32_t block_size,
             uint32_t num_groups, uint64_t block_bytes,
             formats::FileAccess access = formats::FileAccess::kMap);

  /// Block numbers count the blocks in the file; use them with data().
  const std::vector<record::PrefixNode>& nodes() const { return nodes_; }
  std::span<const std::byte> data(BlockId block) const;
  uint32_t num_blocks() const { return num_blocks_; }  // that are undamaged
  uint32_t num_damaged() const { return num_damaged_; }

 private:
  void read_index(uint64_t at, uint64_t count, uint32_t block_size, uint32_t num_groups);

  formats::MappedFile file_;
  uint64_t block_bytes_;
  uint64_t first_block_ = 0;  // its offset in the file
  std::vector<record::PrefixNode> nodes_;
  uint32_t num_blocks_ = 0;
  uint32_t num_damaged_ = 0;
};

}  // namespace quire::engine
