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

/// Thrown where a block ends within a record.
struct EndOfBlock {};

}  // namespace

RunReader::RunReader(const std::filesystem::path& path)
    : path_(path), log_(open_log(path)), step_(steps_before()) {}

Error RunReader::broken(std::string_view what) const {
  return file_error(blocks().path(), blocks().records_at() + at_, what);
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

/// `before`: how many nodes came before it.
PrefixNode RunReader::node(size_t before, bool names_blocks) {
  PrefixNode out;
  const auto parent = bounded<uint64_t>(before);  // one of those before, or 0
  if (parent > 0) out.parent = static_cast<uint32_t>(parent - 1);
  out.salt = number();
  for (uint32_t i = 0; i < config().block_size; ++i) out.tokens.push_back(bounded<TokenId>(INT32_MAX));
  for (size_t group = 0; group < config().kv_windows.size(); ++group) {
    const auto block = bounded<uint32_t>(names_blocks ? config().num_blocks : 1);
    out.blocks.push_back(block == 0 ? kNoBlock : block - 1);
  }
  return out;
}

RunRestore RunReader::restore() {
  RunRestore out;
  for (uint64_t left = number(); left > 0; --left) out.nodes.push_back(node(out.nodes.size(), false));
  return out;
}

RunCached RunReader::cached() {
  RunCached out;
  for (uint64_t left = number(); left > 0; --left) out.nodes.push_back(node(out.nodes.size(), true));
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
  if (names_block && block >= config().num_blocks) {
    throw broken(fmt::format("block {} in a pool of {}", block, config().num_blocks));
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
    out.a = bounded<uint32_t>(config().num_blocks - 1);
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
    if (blocks().next(true)) {
      data_ = blocks().records();
    } else if (!next_part()) {
      return false;
    }
  }
  try {
    read_record(event);
  } catch (const EndOfBlock&) {
    throw broken("a record that continues past its log block");
  }
  return true;
}

/// False if the part that was read is the last.
bool RunReader::next_part() {
  if (part_ + 1 == log_.parts.size()) return false;
  const OpenLog::Part& next = log_.parts[part_ + 1];
  if (!part_ended_) {
    throw file_error(blocks().path(),
                     fmt::format("ends too early: {} follows it", next.blocks.path().string()));
  }
  if (next.header.steps_before != step_ || to_json(next.header.config) != to_json(config())) {
    throw file_error(next.blocks.path(), fmt::format("does not follow {}", blocks().path().string()));
  }
  ++part_;
  begun_ = part_ended_ = false;
  return true;
}

void RunReader::read_record(RunEvent& event) {
  const char kind = data_[at_++];
  if (ended_) throw broken("a record after the end of the run");
  if (part_ended_) throw broken("a record after the end of its part");
  const bool first = !std::exchange(begun_, true);
  if ((kind == kCachedRecord) != (first && log_.parts[part_].header.part > 1)) {
    throw broken(first ? "a part that does not begin with the cached blocks" : "cached blocks within a part");
  }
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
    case kCachedRecord:
      event = cached();
      return;
    case kPartEndRecord:
      event = RunPartEnd{number()};
      part_ended_ = true;
      return;
    default:
      --at_;
      throw broken(fmt::format("unknown kind of record: {}", static_cast<int>(kind)));
  }
}

}  // namespace quire::record
