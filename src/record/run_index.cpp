#include "record/run_index.h"

#include <unordered_map>

#include "base/file_error.h"
#include "record/leb128.h"
#include "record/log_files.h"

namespace quire::record {

namespace {

class IndexReader {
 public:
  void read(BlockReader& blocks) {
    while (blocks.next(false)) {
      out_.steps = blocks.steps();
      take(blocks);
    }
  }
  RunIndex& out() { return out_; }

 private:
  void take(const BlockReader& blocks) {
    std::string_view rest = blocks.index();
    const auto broken = [&] {
      return file_error(blocks.path(), blocks.records_at() - rest.size(), "not an entry of an index");
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
        const auto found = live_.find(id);
        if (found == live_.end()) continue;
        out_.sequences[found->second].ended = step;
        live_.erase(found);
        continue;
      }
      const uint64_t length = number();
      if (length > rest.size()) throw broken();
      live_.try_emplace(id, out_.sequences.size());
      out_.sequences.push_back({id, std::string(rest.substr(0, length)), step, std::nullopt});
      rest.remove_prefix(length);
    }
  }

  RunIndex out_;
  std::unordered_map<SeqId, size_t> live_;
};

}  // namespace

RunIndex read_run_index(const std::filesystem::path& path) {
  OpenLog log = open_log(path);
  IndexReader reader;
  reader.out().steps_before = reader.out().steps = log.parts.front().header.steps_before;
  for (OpenLog::Part& part : log.parts) reader.read(part.blocks);
  return std::move(reader.out());
}

}  // namespace quire::record
