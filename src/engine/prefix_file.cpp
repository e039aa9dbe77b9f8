#include "engine/prefix_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <unistd.h>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/file_error.h"
#include "formats/kept_file.h"

namespace quire::engine {
namespace {

constexpr std::string_view kFormatKey = "quire_prefix_cache";
constexpr int kFormat = 1;
constexpr uint64_t kMostHeader = uint64_t{1} << 16;
constexpr uint64_t kAlignment = 4096;
constexpr std::string_view kEnd = "\nthe end of a quire_prefix_cache\n";

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// The numbers of an index entry, all little-endian: parent, salt, tokens, then one checksum per group; 0: no
/// block.
template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <typename T>
T get(const std::byte*& at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  at += sizeof(value);
  return value;
}

uint64_t node_bytes(uint32_t block_size, uint32_t num_groups) {
  return sizeof(uint32_t) + sizeof(uint64_t) + uint64_t{block_size} * sizeof(TokenId) +
         uint64_t{num_groups} * sizeof(uint64_t);
}

/// Never 0, which means that there is no block.
uint64_t block_checksum(std::span<const std::byte> block) {
  return std::max<uint64_t>(formats::checksum(block), 1);
}

std::string index_of(const std::vector<record::PrefixNode>& nodes,
                     const std::function<std::span<const std::byte>(BlockId)>& read) {
  std::string index;
  for (const record::PrefixNode& node : nodes) {
    put(index, node.parent);
    put(index, node.salt);
    for (const TokenId token : node.tokens) put(index, token);
    for (const BlockId block : node.blocks) {
      put(index, block == kNoBlock ? uint64_t{0} : block_checksum(read(block)));
    }
  }
  return index;
}

const std::filesystem::path& trusted(const std::filesystem::path& path) {
  formats::refuse_file_of_others(path);
  return path;
}

/// Up to `most` bytes from `at` on.
std::string read_part(std::ifstream& in, uint64_t at, uint64_t most) {
  std::string out(most, '\0');
  in.clear();
  in.seekg(static_cast<std::streamoff>(at));
  in.read(out.data(), static_cast<std::streamsize>(out.size()));
  out.resize(static_cast<size_t>(in.gcount()));
  return out;
}

bool has_zeros_alone(std::ifstream& in) {
  for (uint64_t at = 0;;) {
    const std::string part = read_part(in, at, kMostHeader);
    if (part.find_first_not_of('\0') != std::string::npos) return false;
    if (part.size() < kMostHeader) return true;
    at += part.size();
  }
}

/// Whether a file is a prefix cache, even a damaged one: its name is at the beginning or cut off, another
/// fact of its first line or the mark at its end is there, or the file has only zeros, from a crash of the
/// machine.
bool is_ours(std::ifstream& in, uint64_t size) {
  const std::string expected = fmt::format("{{\"{}\"", kFormatKey);
  const std::string beginning = read_part(in, 0, kMostHeader);
  return expected.starts_with(beginning.substr(0, expected.size())) ||
         beginning.find("\"index_checksum\":\"") != std::string::npos ||
         read_part(in, size - std::min<uint64_t>(size, kEnd.size()), kEnd.size()) == kEnd ||
         has_zeros_alone(in);
}

}  // namespace

void write_prefix_file(const std::filesystem::path& path, const PrefixFileKey& key, uint32_t block_size,
                       uint64_t block_bytes, const std::vector<record::PrefixNode>& nodes,
                       const std::function<std::span<const std::byte>(BlockId)>& read) {
  const std::string index = index_of(nodes, read);
  const std::string header =
      json::serialize(json::object{
          {kFormatKey, kFormat},
          {"key", key},
          {"block_size", block_size},
          {"block_bytes", block_bytes},
          {"nodes", nodes.size()},
          {"index_checksum", formats::checksum_text(formats::checksum(std::as_bytes(std::span(index))))}}) +
      "\n";
  formats::refuse_folder_of_others(path);
  check_prefix_file_place(path);  // checked again, since hours may have passed since the start
  formats::FileReplacement out(path, 0600);
  if (out.is_taken()) throw file_error(path, "another process is writing it");
  out.write(header);
  out.write(index);
  out.pad(kAlignment);
  for (const record::PrefixNode& node : nodes) {
    for (const BlockId block : node.blocks) {
      if (block != kNoBlock) out.write(read(block).first(block_bytes));
    }
  }
  out.write(kEnd);
  out.commit();
}

void check_prefix_file_place(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::exists(folder)) throw file_error(path, "its folder does not exist");
  if (!fs::is_directory(folder) || ::access(folder.c_str(), W_OK) != 0) {
    throw file_error(path, "no file can be created in this folder");
  }
  if (!fs::exists(path)) return;
  if (!fs::is_regular_file(path)) throw file_error(path, "is no file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw file_error(path, "cannot be read");
  if (!is_ours(in, fs::file_size(path))) {
    throw file_error(path,
                     "is not a prefix cache and is not overwritten (delete it, or choose another name)");
  }
}

PrefixFile::PrefixFile(const std::filesystem::path& path, const PrefixFileKey& key, uint32_t block_size,
                       uint32_t num_groups, uint64_t block_bytes, formats::FileAccess access)
    : file_(trusted(path), access), block_bytes_(block_bytes) {
  const std::string_view all(reinterpret_cast<const char*>(file_.data()), file_.size());
  const size_t line = all.substr(0, kMostHeader).find('\n');
  if (line == std::string_view::npos) throw file_error(path, "not a prefix cache: its first line has no end");
  const json::value header = parse_json(all.substr(0, line), path);
  const JsonObject object(header, path);
  object.integer(kFormatKey, kFormat, kFormat);
  formats::require_same_facts(object.object("key"), key);
  if (const int64_t theirs = object.integer("block_size", 1, UINT32_MAX); theirs != block_size) {
    throw file_error(path,
                     fmt::format("it has blocks of {} tokens, and here they have {}", theirs, block_size));
  }
  object.integer("block_bytes", static_cast<int64_t>(block_bytes), static_cast<int64_t>(block_bytes));
  const uint64_t each = node_bytes(block_size, num_groups);
  const auto count =
      static_cast<uint64_t>(object.integer("nodes", 0, static_cast<int64_t>((all.size() - line) / each)));
  const uint64_t at = line + 1;
  if (count * each > all.size() - at) throw file_error(path, "the index is cut off");
  const std::span index(file_.data() + at, count * each);
  if (object.string("index_checksum") != formats::checksum_text(formats::checksum(index))) {
    throw file_error(path, at, "the index is damaged");
  }
  first_block_ = aligned(at + count * each);
  read_index(at, count, block_size, num_groups);
}

void PrefixFile::read_index(uint64_t at, uint64_t count, uint32_t block_size, uint32_t num_groups) {
  const std::byte* from = file_.data() + at;
  uint32_t stored = 0;  // blocks so far, damaged ones included
  for (uint64_t i = 0; i < count; ++i) {
    record::PrefixNode& node = nodes_.emplace_back();
    node.parent = get<uint32_t>(from);
    if (node.parent != record::PrefixNode::kRoot && node.parent >= i) {
      throw file_error(file_.path(), "the index has a node before its parent");
    }
    node.salt = get<uint64_t>(from);
    if (node.parent != record::PrefixNode::kRoot && node.salt != nodes_[node.parent].salt) {
      throw file_error(file_.path(), "the index has a node of another salt than its parent");
    }
    for (uint32_t t = 0; t < block_size; ++t) node.tokens.push_back(get<TokenId>(from));
    for (uint32_t group = 0; group < num_groups; ++group) {
      const auto expected = get<uint64_t>(from);
      node.blocks.push_back(kNoBlock);
      if (expected == 0) continue;
      const BlockId block = stored++;
      const uint64_t end = first_block_ + uint64_t{stored} * block_bytes_;
      if (end > file_.size() || block_checksum(data(block)) != expected) {
        ++num_damaged_;
        continue;
      }
      node.blocks.back() = block;
      ++num_blocks_;
    }
  }
}

std::span<const std::byte> PrefixFile::data(BlockId block) const {
  return {file_.data() + first_block_ + block * block_bytes_, block_bytes_};
}

}  // namespace quire::engine
