#include <algorithm>
#include <span>
#include <utility>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "record/config_json.h"
#include "record/display_text.h"
#include "record/leb128.h"
#include "record/run_format.h"
#include "record/run_record.h"

namespace quire::record {
namespace {

constexpr size_t kReserved = size_t{1} << 16;  // bytes, for when memory is short

/// The first line of a part; that of the first part of a log without parts does not say so.
std::string first_line(const std::string& config, const std::string& warning, bool in_parts, uint64_t part,
                       uint64_t steps) {
  const std::string place =
      in_parts ? fmt::format("\"{}\":{},\"{}\":{},", kPartKey, part, kStepsKey, steps) : std::string();
  const std::string last =
      warning.empty() ? std::string() : fmt::format(",\"{}\":{}", kWarningKey, json::serialize(warning));
  return fmt::format("{{\"{}\":{},{}\"scheduler\":{}{}}}\n", kFormatKey, kFormat, place, config, last);
}

void append_node(std::string& out, const PrefixNode& node) {
  append_leb128(out, node.parent == PrefixNode::kRoot ? 0 : uint64_t{node.parent} + 1);
  append_leb128(out, node.salt);
  for (const TokenId token : node.tokens) append_leb128(out, static_cast<uint32_t>(token));
}

}  // namespace

RunWriter::RunWriter(const std::filesystem::path& path, uint64_t most_bytes, std::string_view warning)
    : blocks_(PartWriter(path, most_bytes),
              path.string() + ": cannot be written any more: the decision log is cut off here"),
      most_bytes_(most_bytes),
      warning_(valid_utf8(warning)) {
  buffer_.reserve(kReserved);
  index_.reserve(kReserved);
}

void RunWriter::check_place(const std::filesystem::path& path, uint64_t most_bytes) {
  PartWriter::check_place(path, most_bytes);
}

void RunWriter::begin(const control::SchedulerConfig& config) {
  config_ = json::serialize(to_json(config));
  blocks_.begin(first_line(config_, warning_, most_bytes_ > 0, part_, planned_));
  flush();
}

/// Has `append` put a record into the buffer.
template <class Append>
void RunWriter::record(const Append& append) noexcept {
  if (failed()) return;
  const size_t begin = buffer_.size();
  const size_t entry = index_.size();
  try {
    append();
  } catch (...) {
    buffer_.resize(begin);
    index_.resize(entry);
    flush();
    blocks_.cut_off();
  }
}

void RunWriter::number(uint64_t value) { append_leb128(buffer_, value); }

void RunWriter::index(char kind, SeqId id) {
  index_.push_back(kind);
  append_leb128(index_, id);
  append_leb128(index_, planned_);
}

void RunWriter::add(const control::SeqSpec& spec, std::string_view name) noexcept {
  record([&] {
    const auto tokens = [this](std::span<const TokenId> list) {
      number(list.size());
      for (const TokenId token : list) number(static_cast<uint32_t>(token));
    };
    last_add_ = buffer_.size();
    last_entry_ = index_.size();
    if (spec.wants.any()) {
      buffer_.push_back(kWantsRecord);
      number(static_cast<uint64_t>(spec.wants.logprobs + 1));
      number(spec.wants.first_row);
      number(static_cast<uint64_t>(spec.wants.pooling));
    }
    buffer_.push_back(kAddRecord);
    number(spec.id);
    tokens(spec.prompt);
    number(spec.max_tokens);
    tokens(spec.stop_tokens);
    number(spec.salt);
    number(spec.fork_of ? *spec.fork_of + 1 : 0);
    number(zigzag(spec.arrived));
    number(zigzag(spec.ttft_deadline));
    number(zigzag(spec.priority));
    number(spec.tenant);
    number(spec.expected_tokens ? uint64_t{*spec.expected_tokens} + 1 : 0);
    number(name.size());
    buffer_.append(name);
    index(kAddedEntry, spec.id);
    append_leb128(index_, name.size());
    index_.append(name);
  });
}

void RunWriter::take_back_add() noexcept {
  if (failed()) return;
  buffer_.resize(last_add_);
  index_.resize(last_entry_);
}

void RunWriter::refused(const RequestError& error) noexcept {
  record([&] {
    buffer_.push_back(kRefusedRecord);
    number(static_cast<uint64_t>(error.code));
    number(error.message.size());
    buffer_.append(error.message);
  });
}

void RunWriter::abort(SeqId id, bool stop_string) noexcept {
  record([&] {
    buffer_.push_back(stop_string ? kStopRecord : kAbortRecord);
    number(id);
  });
}

void RunWriter::set_budget(uint32_t tokens) noexcept {
  record([&] {
    buffer_.push_back(kBudgetRecord);
    number(tokens);
  });
}

void RunWriter::plan(uint64_t step, Nanos now) noexcept {
  record([&] {
    buffer_.push_back(kPlanRecord);
    number(step);
    number(zigzag(now));
    planned_ = step;
  });
}

void RunWriter::commit(uint64_t step, const control::StepResult& result, Nanos now) noexcept {
  record([&] {
    buffer_.push_back(kCommitRecord);
    number(step);
    number(zigzag(now));
    number(result.seqs.size());
    for (const control::SeqResult& seq : result.seqs) {
      if (!seq.error.empty()) {
        number(1);
      } else {
        number(seq.token ? uint64_t{2} + static_cast<uint32_t>(seq.token->token) : 0);
      }
    }
  });
}

void RunWriter::reset() noexcept {
  record([&] { buffer_.push_back(kResetRecord); });
}

void RunWriter::restore(const std::vector<PrefixNode>& nodes) noexcept {
  record([&] {
    buffer_.push_back(kRestoreRecord);
    number(nodes.size());
    for (const PrefixNode& node : nodes) {
      append_node(buffer_, node);
      for (const BlockId block : node.blocks) number(block == kNoBlock ? 0 : 1);
    }
  });
}

void RunWriter::take(const control::Decision& decision) noexcept {
  record([&] {
    buffer_.push_back(static_cast<char>(kFirstDecision + static_cast<uint8_t>(decision.kind)));
    number(decision.seq);
    number(decision.a);
    number(decision.b);
    if (decision.kind == control::DecisionKind::kFinish) index(kEndedEntry, decision.seq);
  });
}

void RunWriter::take(const control::Cause& cause) noexcept {
  record([&] {
    buffer_.push_back(static_cast<char>(kFirstCause + static_cast<uint8_t>(cause.kind)));
    if (cause.kind == control::CauseKind::kPublished) return number(cause.a);
    number(cause.seq);
    switch (cause.kind) {
      case control::CauseKind::kVictim:
        number(cause.other);
        [[fallthrough]];
      case control::CauseKind::kFirst:
      case control::CauseKind::kBehind:
        number(static_cast<uint64_t>(cause.ground));
        return number(zigzag(cause.value));
      case control::CauseKind::kFollows:
        return number(cause.other);
      case control::CauseKind::kShort:
        number(zigzag(cause.value));
        [[fallthrough]];
      default:
        number(cause.a);
        number(cause.b);
    }
  });
}

void RunWriter::end(uint64_t digest) noexcept {
  record([&] {
    buffer_.push_back(kEndRecord);
    number(digest);
  });
  flush();
}

void RunWriter::begin_part(control::Scheduler& scheduler) noexcept {
  if (!buffer_.empty() || failed()) return;
  try {
    const std::vector<PrefixNode> nodes = snapshot(scheduler.pool().cache());
    const uint64_t planned = scheduler.next_step() - 1;
    std::string last(1, kPartEndRecord);
    append_leb128(last, scheduler.digest());
    std::string first(1, kCachedRecord);
    append_leb128(first, nodes.size());
    for (const PrefixNode& node : nodes) {
      append_node(first, node);
      for (const BlockId block : node.blocks)
        append_leb128(first, block == kNoBlock ? 0 : uint64_t{block} + 1);
    }
    if (!blocks_.begin_part(last, first_line(config_, warning_, true, part_ + 1, planned), first)) return;
    ++part_;
    part_bytes_ = 0;
    planned_ = planned;
  } catch (...) {
    return;  // with more memory, next time
  }
}

void RunWriter::settle() noexcept {
  if (buffer_.empty() || failed()) return;
  try {
    blocks_.give(buffer_, index_, planned_);
  } catch (...) {
    return;  // with more memory, next time
  }
  part_bytes_ += buffer_.size() + index_.size();
  buffer_.clear();
  index_.clear();
}

void RunWriter::flush() noexcept {
  settle();
  blocks_.flush();
}

}  // namespace quire::record
