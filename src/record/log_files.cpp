#include "record/log_files.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/file_error.h"
#include "base/json.h"
#include "base/output_file.h"
#include "record/config_json.h"
#include "record/run_format.h"

namespace quire::record {
namespace {

namespace fs = std::filesystem;

constexpr FileKind kKind{"decision log", "{\"quire_run\":"};
static_assert(kKind.begins.substr(2, kFormatKey.size()) == kFormatKey);
constexpr uint32_t kMostInPool = 1U << 26;  // of blocks and of slots
constexpr size_t kMostGroups = 64;

OpenLog::Part open_part(const fs::path& path) {
  BlockReader blocks(path);
  LogHeader header = read_header(path, blocks.first_line());
  return {std::move(header), std::move(blocks)};
}

/// Whether the file has the name of part `part` of some log.
bool has_name_of_part(const fs::path& path, uint64_t part) {
  return path.extension() == fmt::format(".{}", part);
}

/// The latest part was renamed, and its program was killed before the next one was there.
fs::path latest_of(const fs::path& log) {
  std::error_code none;
  if (fs::exists(log, none)) return log;
  const std::vector<uint64_t> parts = numbered_files(log);
  return parts.empty() ? log : part_path(log, parts.back());
}

OpenLog open_once(const fs::path& log) {
  OpenLog out;
  const fs::path latest = latest_of(log);
  out.parts.push_back(open_part(latest));
  uint64_t part = out.parts.back().header.part;
  std::error_code none;
  const auto follows_another = [&] { return part > 1 && fs::exists(part_path(log, part - 1), none); };
  out.is_single = latest == log && has_name_of_part(log, part) && !follows_another();
  while (follows_another()) {
    const fs::path before = part_path(log, --part);
    out.parts.push_back(open_part(before));
    if (out.parts.back().header.part != part) {
      throw file_error(before,
                       fmt::format("is part {} of a log, not part {}", out.parts.back().header.part, part));
    }
  }
  std::ranges::reverse(out.parts);
  return out;
}

}  // namespace

FileKind decision_log_kind() { return kKind; }

uint64_t parse_log_limit(const std::string& text) {
  constexpr uint64_t kLeast = uint64_t{64} << 10;
  if (text.empty()) return 0;
  const uint64_t bytes = parse_bytes(text, "--decision-log-max");
  if (bytes < kLeast)
    throw Error(fmt::format("--decision-log-max: {} is less than {}", text, human_bytes(kLeast)));
  return bytes;
}

fs::path part_path(const fs::path& log, uint64_t part) { return fs::path(log) += fmt::format(".{}", part); }

bool is_part(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return false;
  std::ifstream in(path, std::ios::binary);
  std::string begin(96, '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(in.gcount()));
  return begin.empty() || (begin.starts_with(kKind.begins) &&
                           begin.find(fmt::format("\"{}\":", kPartKey)) != std::string::npos);
}

std::vector<uint64_t> numbered_files(const fs::path& log) {
  std::vector<uint64_t> out;
  const std::string start = log.filename().string() + ".";
  const fs::path folder = log.has_parent_path() ? log.parent_path() : fs::path(".");
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(start)) continue;
    uint64_t part = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, failed] = std::from_chars(name.data() + start.size(), end, part);
    if (failed != std::errc() || stop != end || part_path(log, part).filename() != name) continue;
    out.push_back(part);
  }
  std::ranges::sort(out);
  return out;
}

LogHeader read_header(const fs::path& path, std::string_view first_line) {
  const json::value header = parse_json(first_line.substr(0, first_line.size() - 1), path);
  const JsonObject object(header, path);
  const int64_t format = object.integer(kFormatKey, 1, INT32_MAX);
  if (format != kFormat) {
    throw file_error(path,
                     fmt::format("a decision log of format {}, and this quire reads format {}: use the {} "
                                 "quire that wrote it",
                                 format, kFormat, format > kFormat ? "newer" : "older"));
  }
  LogHeader out;
  out.part = static_cast<uint64_t>(object.integer_or(kPartKey, 1, 1, INT64_MAX));
  out.steps_before = static_cast<uint64_t>(object.integer_or(kStepsKey, 0, 0, INT64_MAX));
  out.warning = object.string_or(kWarningKey, "");
  const JsonObject scheduler = object.object("scheduler");
  out.config = scheduler_config_from(scheduler);
  for (const auto& [key, value] : {std::pair{"num_blocks", out.config.num_blocks},
                                   {"num_host_blocks", out.config.num_host_blocks},
                                   {"max_num_seqs", out.config.max_num_seqs}}) {
    if (value > kMostInPool) throw scheduler.error(key, "out of range");
  }
  if (out.config.block_size == 0) throw scheduler.error("block_size", "out of range");
  if (out.config.kv_windows.empty() || out.config.kv_windows.size() > kMostGroups) {
    throw scheduler.error("kv_windows", fmt::format("expected 1 to {} K/V groups", kMostGroups));
  }
  return out;
}

uint64_t OpenLog::num_bytes() const {
  uint64_t sum = 0;
  for (const Part& part : parts) sum += part.blocks.num_bytes();
  return sum;
}

OpenLog open_log(const fs::path& path) {
  const fs::path log = followed(path);
  // Its program may begin a part, and delete one, just when it is opened.
  constexpr int kMostTries = 5;
  for (int tries = 1;; ++tries) {
    const std::vector<uint64_t> listed = numbered_files(log);
    try {
      OpenLog out = open_once(log);
      if (tries == kMostTries || listed == numbered_files(log)) return out;
    } catch (const Error&) {
      if (tries == kMostTries || listed == numbered_files(log)) throw;
    }
  }
}

}  // namespace quire::record
