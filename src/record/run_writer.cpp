#include <algorithm>

#include <boost/json/serialize.hpp>

#include "base/log.h"
#include "record/config_json.h"
#include "record/leb128.h"
#include "record/run_format.h"
#include "record/run_record.h"

namespace quire {
namespace {

constexpr size_t kFlushAbove = size_t{1} << 16;
constexpr FileKind kKind{"decision log", "{\"quire_run\":"};
static_assert(kKind.begins.substr(2, kFormatKey.size()) == kFormatKey);

}  // namespace

RunWriter::RunWriter(const std::filesystem::path& path) : out_(path, kKind) {}

void RunWriter::check_place(const std::filesystem::path& path) { check_private_file(path, kKind); }

void RunWriter::begin(const SchedulerConfig& config) {
  buffer_ = json::serialize(json::object{{kFormatKey, kFormat}, {"scheduler", to_json(config)}}) + "\n";
  flush();
}

void RunWriter::number(uint64_t value) { append_leb128(buffer_, value); }

void RunWriter::add(const SeqSpec& spec, std::string_view name) {
  const auto tokens = [this](const std::vector<TokenId>& list) {
    number(list.size());
    for (const TokenId token : list) number(static_cast<uint32_t>(token));
  };
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
  flush_if_long();
}

void RunWriter::abort(SeqId id, bool stop_string) {
  buffer_.push_back(stop_string ? kStopRecord : kAbortRecord);
  number(id);
}

void RunWriter::set_budget(uint32_t tokens) {
  buffer_.push_back(kBudgetRecord);
  number(tokens);
}

void RunWriter::plan(Nanos now) {
  buffer_.push_back(kPlanRecord);
  number(zigzag(now));
}

void RunWriter::commit(const StepResult& result, Nanos now) {
  buffer_.push_back(kCommitRecord);
  number(zigzag(now));
  number(result.seqs.size());
  for (const SeqResult& seq : result.seqs) {
    if (!seq.error.empty()) {
      number(1);
    } else {
      number(seq.tokens.empty() ? 0 : uint64_t{2} + static_cast<uint32_t>(seq.tokens.front().token));
    }
  }
  flush_if_long();
}

void RunWriter::reset() { buffer_.push_back(kResetRecord); }

void RunWriter::restore(const std::vector<PrefixNode>& nodes) {
  buffer_.push_back(kRestoreRecord);
  number(nodes.size());
  for (const PrefixNode& node : nodes) {
    number(node.parent == PrefixNode::kRoot ? 0 : uint64_t{node.parent} + 1);
    number(node.salt);
    for (const TokenId token : node.tokens) number(static_cast<uint32_t>(token));
    for (const BlockId block : node.blocks) number(block == kNoBlock ? 0 : 1);
    flush_if_long();
  }
}

void RunWriter::take(const Decision& decision) {
  buffer_.push_back(static_cast<char>(kFirstDecision + static_cast<uint8_t>(decision.kind)));
  number(decision.seq);
  number(decision.a);
  number(decision.b);
}

void RunWriter::end(uint64_t digest) {
  buffer_.push_back(kEndRecord);
  number(digest);
  flush();
}

void RunWriter::flush_if_long() {
  if (buffer_.size() > kFlushAbove) flush();
}

void RunWriter::flush() {
  if (!failed()) {
    if (!out_.write(buffer_)) {
      log_warning(out_.path().string() + ": cannot be written any more: the decision log is cut off here");
    }
  }
  buffer_.clear();
}

}  // namespace quire
