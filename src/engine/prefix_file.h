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
// line names what the K/V depends on and has a checksum of the index, the index one of every block. By the
// mark at the end a file is known as a prefix cache though its beginning is damaged.
namespace quire::engine {

/// All that K/V bits depend on beside the tokens, as facts by name; two files serve each other if all are
/// equal.
using PrefixFileKey = json::object;

/// Writes to a file beside `path`, which takes its place at last; only its user may read it, since prompts
/// are in it. `read(block)` is the K/V of a block, `block_bytes` long, until its next call. Throws Error,
/// also if others may write in its folder (nobody could trust the file), and as check_prefix_file_place does.
void write_prefix_file(const std::filesystem::path& path, const PrefixFileKey& key, uint32_t block_size,
                       uint64_t block_bytes, const std::vector<record::PrefixNode>& nodes,
                       const std::function<std::span<const std::byte>(BlockId)>& read);

/// Throws Error if a prefix cache could not be written to `path` at the end, or if what is there may be
/// anything else, which nobody wants overwritten. A prefix cache, which may be, is known by its beginning or
/// by its end; and a file of zeros, which a crash of the machine leaves, is no loss.
void check_prefix_file_place(const std::filesystem::path& path);

/// Such a file in memory.
class PrefixFile {
 public:
  /// Throws Error naming file and fact if it is none, if others may write it, if it was written under another
  /// key or other sizes, or if its index is damaged. What is damaged or missing of the blocks only costs
  /// those: they are left out.
  PrefixFile(const std::filesystem::path& path, const PrefixFileKey& key, uint32_t block_size,
             uint32_t num_groups, uint64_t block_bytes,
             formats::FileAccess access = formats::FileAccess::kMap);

  /// Blocks are numbers in the file, for data().
  const std::vector<record::PrefixNode>& nodes() const { return nodes_; }
  std::span<const std::byte> data(BlockId block) const;
  uint32_t num_blocks() const { return num_blocks_; }  // that are whole
  uint32_t num_damaged() const { return num_damaged_; }

 private:
  void read_index(uint64_t at, uint64_t count, uint32_t block_size, uint32_t num_groups);

  formats::MappedFile file_;
  uint64_t block_bytes_;
  uint64_t first_block_ = 0;  // byte
  std::vector<record::PrefixNode> nodes_;
  uint32_t num_blocks_ = 0;
  uint32_t num_damaged_ = 0;
};

}  // namespace quire::engine
