// The files that quire keeps for its next start. What a checksum covers is out of a fuzzer's reach, so the
// checksums of what is read by its parts are put right first; the others are left as they are.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "backend/cpu/pack_cache.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "control/kv/block_pool.h"
#include "engine/prefix_file.h"
#include "formats/kept_file.h"
#include "record/prefix_snapshot.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {
namespace {

constexpr uint32_t kBlockSize = 4;
constexpr uint64_t kBlockBytes = 64;
const std::vector<uint32_t> kWindows = {0, 8};
// Of a node in the index: parent, salt, tokens, a checksum a K/V group.
constexpr size_t kNodeBytes = 4 + 8 + kBlockSize * 4 + 2 * 8;

void put_right_index_checksum(std::string& file) {
  const size_t line = file.find('\n');
  if (line == std::string::npos) return;
  const size_t sum = file.find("\"index_checksum\":\"");
  const size_t nodes = file.find("\"nodes\":");
  constexpr size_t kDigits = 16;
  if (sum == std::string::npos || nodes == std::string::npos || sum + 18 + kDigits > line || nodes > line) {
    return;
  }
  const uint64_t count = std::strtoull(file.c_str() + nodes + 8, nullptr, 10);
  if (count > (file.size() - line - 1) / kNodeBytes) return;
  const std::string_view index = std::string_view(file).substr(line + 1, count * kNodeBytes);
  file.replace(sum + 18, kDigits, formats::checksum_text(formats::checksum(std::as_bytes(std::span(index)))));
}

void put_right_end(std::string& file) {
  constexpr std::string_view kMagic = "quirepk\n";
  constexpr size_t kEnd = 24;  // magic, length of the line before it, its checksum
  if (file.size() < kEnd) return;
  const size_t line_end = file.size() - kEnd;
  uint64_t length = 0;
  std::memcpy(&length, &file[line_end + 8], sizeof(length));
  length = std::min<uint64_t>(length, line_end);
  const std::string_view line = std::string_view(file).substr(line_end - length, length);
  const uint64_t sum = formats::checksum(std::as_bytes(std::span(line)));
  file.replace(line_end, kMagic.size(), kMagic);
  std::memcpy(&file[line_end + 16], &sum, sizeof(sum));
}

}  // namespace

void prefix_file(std::string_view input) {
  std::string content(input);
  put_right_index_checksum(content);
  try {
    const engine::PrefixFile file(scratch_file("prefix.cache", content), {{"model", "a"}}, kBlockSize,
                                  static_cast<uint32_t>(kWindows.size()), kBlockBytes);
    unsigned sum = 0;
    for (const record::PrefixNode& node : file.nodes()) {
      for (const BlockId block : node.blocks) {
        if (block == kNoBlock) continue;
        for (const std::byte byte : file.data(block)) sum += std::to_integer<unsigned>(byte);
      }
    }
    constexpr uint32_t kBlocks = 12;
    control::BlockPool pool(control::PrefixCache(
        kBlocks, kBlockSize, control::make_eviction(control::EvictionKind::kQueueLru, kBlocks),
        control::PrefixCache::xxh3, kWindows));
    std::vector<record::PrefixNode> nodes = file.nodes();
    record::restore(pool, nodes);
    if (const std::string broken = pool.check_invariants(); !broken.empty()) throw std::logic_error(broken);
    if (record::snapshot(pool.cache()).size() > file.nodes().size() + sum)
      throw std::logic_error("more than there was");
  } catch (const Error&) {
    return;
  }
}

void pack_cache(std::string_view input) {
  static ThreadPool pool(1);
  static kernels::KernelContext context{kernels::IsaLevel::kReference, pool};
  std::string content(input);
  put_right_end(content);
  try {
    const backend::cpu::PackFile file(scratch_file("packed.quire", content), {{"model", "a"}}, context);
    unsigned sum = 0;
    for (size_t i = 0; i <= file.size(); ++i) {
      const kernels::PackedMatrix matrix = file.matrix(i, 32, 8, WeightFormat::kF32);
      for (const std::byte byte : matrix.bytes()) sum += std::to_integer<unsigned>(byte);
    }
    throw std::logic_error("a matrix behind the last one: " + std::to_string(sum));
  } catch (const Error&) {
    return;
  }
}

}  // namespace quire::fuzz
