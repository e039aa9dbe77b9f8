#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "record/config_json.h"
#include "record/leb128.h"
#include "record/run_format.h"
#include "record/run_record.h"

namespace quire {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{4} << 30;
constexpr uint32_t kMostInPool = 1U << 26;  // of blocks and of slots
constexpr size_t kMostGroups = 64;
/// Thrown where the file ends within a record.
struct EndOfFile {};

}  // namespace

RunReader::RunReader(const std::filesystem::path& path) : path_(path), data_(read_file(path, kMaxBytes)) {
  const size_t line = check_first_line();
  const json::value header = parse_json(std::string_view(data_).substr(0, line), path);
  const JsonObject object(header, path);
  const int64_t format = object.integer(kFormatKey, 1, INT32_MAX);
  if (format != kFormat) {
    throw file_error(path,
                     fmt::format("a decision log of format {}, and this quire reads format {}: use the {} "
                                 "quire that wrote it",
                                 format, kFormat, format > kFormat ? "newer" : "older"));
  }
  const JsonObject scheduler = object.object("scheduler");
  config_ = scheduler_config_from(scheduler);
  for (const auto& [key, value] : {std::pair{"num_blocks", config_.num_blocks},
                                   {"num_host_blocks", config_.num_host_blocks},
                                   {"max_num_seqs", config_.max_num_seqs}}) {
    if (value > kMostInPool) throw scheduler.error(key, "out of range");
  }
  if (config_.block_size == 0) throw scheduler.error("block_size", "out of range");
  if (config_.kv_windows.empty() || config_.kv_windows.size() > kMostGroups) {
    throw scheduler.error("kv_windows", fmt::format("expected 1 to {} K/V groups", kMostGroups));
  }
  at_ = line + 1;
}

size_t RunReader::check_first_line() const {
  const std::string start = fmt::format("{{\"{}\":", kFormatKey);
  const std::string_view head = std::string_view(data_).substr(0, start.size());
  if (data_.empty())
    throw file_error(path_, "empty: no decision log, or its server did not get to its first line");
  if (head != std::string_view(start).substr(0, head.size())) {
    throw file_error(path_, "no decision log (what --decision-log writes begins with " + start + ")");
  }
  const size_t line = data_.find('\n');
  if (line == std::string::npos) throw file_error(path_, "a decision log that ends within its first line");
  return line;
}

Error RunReader::broken(std::string_view what) const { return file_error(path_, at_, what); }

uint64_t RunReader::number() {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    if (at_ == data_.size()) throw EndOfFile{};
    const auto byte = static_cast<uint8_t>(data_[at_++]);
    if (shift == 63 && byte > 1) throw broken("a number of more than 64 bits");
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
}

int64_t RunReader::signed_number() { return unzigzag(number()); }

template <typename T>
T RunReader::bounded(uint64_t most) {
  const uint64_t value = number();
  if (value > most) throw broken(fmt::format("{} where at most {} can be", value, most));
  return static_cast<T>(value);
}

std::vector<TokenId> RunReader::tokens() {
  const uint64_t count = number();
  if (count > data_.size() - at_) throw EndOfFile{};  // each takes a byte at least
  std::vector<TokenId> out(count);
  for (TokenId& token : out) token = bounded<TokenId>(INT32_MAX);
  return out;
}

RunAdd RunReader::add() {
  RunAdd out;
  SeqSpec& spec = out.spec;
  spec.id = number();
  spec.prompt = tokens();
  spec.max_tokens = bounded<uint32_t>(UINT32_MAX);
  spec.stop_tokens = tokens();
  spec.salt = number();
  if (const uint64_t fork = number(); fork > 0) spec.fork_of = fork - 1;
  spec.arrived = signed_number();
  spec.ttft_deadline = signed_number();
  const int64_t priority = signed_number();
  if (priority < -kMostPriority || priority > kMostPriority) throw broken("a priority out of range");
  spec.priority = static_cast<int32_t>(priority);
  spec.tenant = number();
  if (const auto expected = bounded<uint64_t>(uint64_t{UINT32_MAX} + 1); expected > 0) {
    spec.expected_tokens = static_cast<uint32_t>(expected - 1);
  }
  const uint64_t length = number();
  if (length > data_.size() - at_) throw EndOfFile{};
  out.name = data_.substr(at_, length);
  at_ += length;
  return out;
}

RunCommit RunReader::commit() {
  RunCommit out;
  out.now = signed_number();
  const uint64_t count = number();
  if (count > data_.size() - at_) throw EndOfFile{};
  out.results.resize(count);
  for (RunCommit::Result& result : out.results) {
    const auto value = bounded<uint64_t>(uint64_t{INT32_MAX} + 2);
    result.failed = value == 1;
    if (value >= 2) result.token = static_cast<TokenId>(value - 2);
  }
  return out;
}

RunRestore RunReader::restore() {
  RunRestore out;
  for (uint64_t left = number(); left > 0; --left) {
    PrefixNode& node = out.nodes.emplace_back();
    const auto parent = bounded<uint64_t>(out.nodes.size() - 1);  // one of those before, or 0
    if (parent > 0) node.parent = static_cast<uint32_t>(parent - 1);
    node.salt = number();
    for (uint32_t i = 0; i < config_.block_size; ++i) node.tokens.push_back(bounded<TokenId>(INT32_MAX));
    for (size_t group = 0; group < config_.kv_windows.size(); ++group) {
      node.blocks.push_back(bounded<uint32_t>(1) == 0 ? kNoBlock : 0);
    }
  }
  return out;
}

Decision RunReader::decision(DecisionKind kind) {
  Decision out;
  out.step = step_;
  out.kind = kind;
  out.seq = number();
  out.a = bounded<uint32_t>(UINT32_MAX);
  out.b = bounded<uint32_t>(UINT32_MAX);
  const bool copies = kind == DecisionKind::kCopy;
  const bool names_block = copies || kind == DecisionKind::kAllocate || kind == DecisionKind::kShare ||
                           kind == DecisionKind::kRelease || kind == DecisionKind::kEvict;
  const uint32_t block = copies ? std::max(out.a, out.b) : out.a;
  if (names_block && block >= config_.num_blocks) {
    throw broken(fmt::format("block {} in a pool of {}", block, config_.num_blocks));
  }
  return out;
}

std::optional<RunEvent> RunReader::next() {
  if (at_ == data_.size()) return std::nullopt;
  try {
    const char kind = data_[at_++];
    switch (kind) {
      case kAddRecord:
        return add();
      case kAbortRecord:
      case kStopRecord:
        return RunAbort{number(), kind == kStopRecord};
      case kBudgetRecord:
        return RunBudget{bounded<uint32_t>(UINT32_MAX)};
      case kPlanRecord:
        ++step_;
        return RunPlan{signed_number()};
      case kCommitRecord:
        return commit();
      case kResetRecord:
        return RunReset{};
      case kRestoreRecord:
        return restore();
      case kEndRecord:
        return RunEnd{number()};
      default:
        break;
    }
    const int decision = kind - kFirstDecision;
    if (decision < 0 || static_cast<size_t>(decision) >= std::size(kDecisionNames)) {
      --at_;
      throw broken(fmt::format("no record of kind {}", static_cast<int>(kind)));
    }
    return this->decision(static_cast<DecisionKind>(decision));
  } catch (const EndOfFile&) {
    truncated_ = true;
    at_ = data_.size();
    return std::nullopt;
  }
}

}  // namespace quire
