#include "record/run_index.h"

#include <unordered_map>

#include "base/file_error.h"
#include "record/block_reader.h"
#include "record/leb128.h"

namespace quire::record {

RunIndex read_run_index(const std::filesystem::path& path) {
  BlockReader blocks(path);
  RunIndex out;
  std::unordered_map<SeqId, size_t> live;
  while (blocks.next(false)) {
    out.steps = blocks.steps();
    std::string_view rest = blocks.index();
    const auto broken = [&] {
      return file_error(path, blocks.records_at() - rest.size(), "not an entry of an index");
    };
    const auto number = [&] {
      const std::optional<uint64_t> value = take_leb128(rest);
      if (!value) throw broken();
      return *value;
    };
    while (!rest.empty()) {
      const char kind = rest.front();
      if (kind != kAddedEntry && kind != kEndedEntry) throw broken();
      rest.remove_prefix(1);
      const SeqId id = number();
      const uint64_t step = number();
      if (kind == kEndedEntry) {
        const auto found = live.find(id);
        if (found == live.end()) continue;
        out.sequences[found->second].ended = step;
        live.erase(found);
        continue;
      }
      const uint64_t length = number();
      if (length > rest.size()) throw broken();
      live.try_emplace(id, out.sequences.size());
      out.sequences.push_back({id, std::string(rest.substr(0, length)), step, std::nullopt});
      rest.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace quire::record
