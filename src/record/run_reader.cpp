#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "record/config_json.h"
#include "record/run_format.h"
#include "record/run_record.h"

namespace quire {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{4} << 30;
constexpr uint32_t kMostInPool = 1U << 26;  // of blocks and of slots; a few bytes of bookkeeping each
/// Thrown where the file ends within a record.
struct EndOfFile {};

}  // namespace

RunReader::RunReader(const std::filesystem::path& path) : path_(path), data_(read_file(path, kMaxBytes)) {
  const size_t line = data_.find('\n');
  if (line == std::string::npos) throw file_error(path, "no record of a run: its first line has no end");
  const json::value header = parse_json(std::string_view(data_).substr(0, line), path);
  const JsonObject object(header, path);
  object.integer(kFormatKey, kFormat, kFormat);
  const JsonObject scheduler = object.object("scheduler");
  config_ = scheduler_config_from(scheduler);
  for (const auto& [key, value] : {std::pair{"num_blocks", config_.num_blocks},
                                   {"num_host_blocks", config_.num_host_blocks},
                                   {"max_num_seqs", config_.max_num_seqs}}) {
    if (value > kMostInPool) throw scheduler.error(key, "out of range");
  }
  at_ = line + 1;
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

int64_t RunReader::signed_number() {
  const uint64_t value = number();
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

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
  return out;
}

RunCommit RunReader::commit() {
  const uint64_t count = number();
  if (count > data_.size() - at_) throw EndOfFile{};
  RunCommit out;
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

std::optional<RunEvent> RunReader::next() {
  if (at_ == data_.size()) return std::nullopt;
  try {
    const char kind = data_[at_++];
    switch (kind) {
      case kAddRecord:
        return add();
      case kAbortRecord:
        return RunAbort{number()};
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
    Decision out;
    out.step = step_;
    out.kind = static_cast<DecisionKind>(decision);
    out.seq = number();
    out.a = bounded<uint32_t>(UINT32_MAX);
    out.b = bounded<uint32_t>(UINT32_MAX);
    return out;
  } catch (const EndOfFile&) {
    truncated_ = true;
    at_ = data_.size();
    return std::nullopt;
  }
}

}  // namespace quire
