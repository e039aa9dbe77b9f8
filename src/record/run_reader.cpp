#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/json.h"
#include "record/config_json.h"
#include "record/leb128.h"
#include "record/run_format.h"
#include "record/run_record.h"

namespace quire::record {
namespace {

constexpr uint32_t kMostInPool = 1U << 26;  // of blocks and of slots
constexpr size_t kMostGroups = 64;
/// Thrown where a block ends within a record.
struct EndOfBlock {};

}  // namespace

RunReader::RunReader(const std::filesystem::path& path) : path_(path), blocks_(path) {
  const std::string_view line = blocks_.first_line();
  const json::value header = parse_json(line.substr(0, line.size() - 1), path);
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
}

Error RunReader::broken(std::string_view what) const {
  return file_error(path_, blocks_.records_at() + at_, what);
}

uint64_t RunReader::number() {
  std::string_view rest = data_.substr(at_);
  if (const std::optional<uint64_t> value = take_leb128(rest)) {
    at_ = data_.size() - rest.size();
    return *value;
  }
  if (rest.size() < kMostLeb128) throw EndOfBlock{};
  at_ += kMostLeb128;
  throw broken("a number of more than 64 bits");
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
  if (count > data_.size() - at_) throw EndOfBlock{};  // each takes a byte at least
  std::vector<TokenId> out(count);
  for (TokenId& token : out) token = bounded<TokenId>(INT32_MAX);
  return out;
}

RunAdd RunReader::add() {
  RunAdd out;
  control::SeqSpec& spec = out.spec;
  spec.id = number();
  spec.prompt = tokens();
  spec.max_tokens = bounded<uint32_t>(UINT32_MAX);
  spec.stop_tokens = tokens();
  spec.salt = number();
  if (const uint64_t fork = number(); fork > 0) spec.fork_of = fork - 1;
  spec.arrived = signed_number();
  spec.ttft_deadline = signed_number();
  const int64_t priority = signed_number();
  if (priority < -control::kMostPriority || priority > control::kMostPriority)
    throw broken("a priority out of range");
  spec.priority = static_cast<int32_t>(priority);
  spec.tenant = number();
  if (const auto expected = bounded<uint64_t>(uint64_t{UINT32_MAX} + 1); expected > 0) {
    spec.expected_tokens = static_cast<uint32_t>(expected - 1);
  }
  out.name = text();
  return out;
}

RunAdd RunReader::add_with_wants() {
  PromptWants wants;
  wants.logprobs = bounded<int32_t>(INT32_MAX) - 1;
  wants.first_row = bounded<uint32_t>(UINT32_MAX);
  wants.pooling = static_cast<Pooling>(bounded<uint8_t>(static_cast<uint64_t>(Pooling::kMean)));
  if (at_ == data_.size()) throw EndOfBlock{};
  if (data_[at_++] != kAddRecord) throw broken("what is wanted of a prompt, and no sequence behind it");
  RunAdd out = add();
  out.spec.wants = wants;
  return out;
}

RunCommit RunReader::commit() {
  RunCommit out;
  out.step = number();
  out.now = signed_number();
  const uint64_t count = number();
  if (count > data_.size() - at_) throw EndOfBlock{};
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

control::Decision RunReader::decision(control::DecisionKind kind) {
  control::Decision out;
  out.step = step_;
  out.kind = kind;
  out.seq = number();
  out.a = bounded<uint32_t>(UINT32_MAX);
  out.b = bounded<uint32_t>(UINT32_MAX);
  const bool copies = kind == control::DecisionKind::kCopy;
  const bool names_block = copies || kind == control::DecisionKind::kAllocate ||
                           kind == control::DecisionKind::kShare || kind == control::DecisionKind::kRelease ||
                           kind == control::DecisionKind::kEvict;
  const uint32_t block = copies ? std::max(out.a, out.b) : out.a;
  if (names_block && block >= config_.num_blocks) {
    throw broken(fmt::format("block {} in a pool of {}", block, config_.num_blocks));
  }
  return out;
}

RunPlan RunReader::plan() {
  RunPlan out;
  out.step = number();
  if (out.step != step_ + 1) throw broken(fmt::format("step {} where {} is due", out.step, step_ + 1));
  step_ = out.step;
  out.now = signed_number();
  return out;
}

RunRefusal RunReader::refusal() {
  const auto code = bounded<uint8_t>(static_cast<uint64_t>(RequestErrorCode::kInternal));
  return {static_cast<RequestErrorCode>(code), text()};
}

std::string RunReader::text() {
  const uint64_t length = number();
  if (length > data_.size() - at_) throw EndOfBlock{};
  at_ += length;
  return std::string(data_.substr(at_ - length, length));
}

control::Cause RunReader::cause(control::CauseKind kind) {
  control::Cause out;
  out.kind = kind;
  if (kind == control::CauseKind::kPublished) {
    out.a = bounded<uint32_t>(config_.num_blocks - 1);
    return out;
  }
  out.seq = number();
  switch (kind) {
    case control::CauseKind::kVictim:
      out.other = number();
      [[fallthrough]];
    case control::CauseKind::kFirst:
    case control::CauseKind::kBehind:
      out.ground = static_cast<control::Ground>(bounded<uint8_t>(kNumGrounds - 1));
      out.value = signed_number();
      break;
    case control::CauseKind::kFollows:
      out.other = number();
      break;
    case control::CauseKind::kShort:
      out.value = signed_number();
      [[fallthrough]];
    default:
      out.a = bounded<uint32_t>(UINT32_MAX);
      out.b = bounded<uint32_t>(UINT32_MAX);
  }
  return out;
}

std::optional<RunEvent> RunReader::next() {
  RunEvent event;
  if (!next(event)) return std::nullopt;
  return event;
}

bool RunReader::next(RunEvent& event) {
  while (at_ == data_.size()) {
    at_ = 0;
    data_ = {};
    if (!blocks_.next(true)) return false;
    data_ = blocks_.records();
  }
  try {
    read_record(event);
  } catch (const EndOfBlock&) {
    throw broken("a record that continues past its log block");
  }
  return true;
}

void RunReader::read_record(RunEvent& event) {
  const char kind = data_[at_++];
  if (ended_) throw broken("a record after the end of the run");
  const int decision = kind - kFirstDecision;
  if (decision >= 0 && static_cast<size_t>(decision) < std::size(kDecisionNames)) {
    event = this->decision(static_cast<control::DecisionKind>(decision));
    return;
  }
  const int cause = kind - kFirstCause;
  if (cause >= 0 && cause <= static_cast<int>(control::CauseKind::kFollows)) {
    event = this->cause(static_cast<control::CauseKind>(cause));
    return;
  }
  switch (kind) {
    case kAddRecord:
      event = add();
      return;
    case kWantsRecord:
      event = add_with_wants();
      return;
    case kRefusedRecord:
      event = refusal();
      return;
    case kAbortRecord:
    case kStopRecord:
      event = RunAbort{number(), kind == kStopRecord};
      return;
    case kBudgetRecord:
      event = RunBudget{bounded<uint32_t>(UINT32_MAX)};
      return;
    case kPlanRecord:
      event = plan();
      return;
    case kCommitRecord:
      event = commit();
      return;
    case kResetRecord:
      event = RunReset{};
      return;
    case kRestoreRecord:
      event = restore();
      return;
    case kEndRecord:
      event = RunEnd{number()};
      ended_ = true;
      return;
    default:
      --at_;
      throw broken(fmt::format("unknown kind of record: {}", static_cast<int>(kind)));
  }
}

}  // namespace quire::record
