#include "tests/control/property/oracle_executor.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

namespace quire::test {
namespace {

using backend::sim::SyntheticKv;

TokenId sample(uint64_t content, uint32_t choice) {
  return static_cast<TokenId>(mix64(content + choice) % kVocabulary);
}

}  // namespace

Solo run_alone(const control::SeqSpec& spec) {
  Solo solo;
  uint64_t content = SyntheticKv::root(spec.salt);
  const auto push = [&](TokenId token) {
    content = SyntheticKv::extend(content, token);
    solo.tokens.push_back(token);
    solo.contents.push_back(content);
  };
  for (const TokenId token : spec.prompt) push(token);
  for (uint32_t i = 0; i < spec.max_tokens; ++i) {
    push(sample(content, spec.sampling.choice));
    if (std::ranges::count(spec.stop_tokens, solo.tokens.back()) > 0) {
      solo.finish = control::FinishReason::kStop;
      break;
    }
  }
  return solo;
}

OracleExecutor::OracleExecutor(uint32_t num_blocks, uint32_t block_size, uint64_t seed,
                               std::vector<uint32_t> windows, uint32_t num_host_blocks)
    : block_size_(block_size),
      windows_(std::move(windows)),
      random_(seed),
      kv_(num_blocks, block_size, num_host_blocks) {}

void OracleExecutor::fail(const std::string& what) {
  if (error_.empty()) error_ = what;
}

OracleExecutor::Place& OracleExecutor::place(const Slot& slot, uint32_t group, uint32_t position) {
  const BlockId block = slot.tables.at(group).at(position / block_size_);
  return kv_.at(block, position);
}

void OracleExecutor::append(Slot& slot, std::span<const BlockId> blocks) const {
  const size_t rows = blocks.size() / windows_.size();
  for (size_t i = 0; i < blocks.size(); ++i) slot.tables[i / rows].push_back(blocks[i]);
}

control::StepResult OracleExecutor::execute(const control::StepPlan& plan, uint32_t error_every) {
  add_to_digest(plan);
  set_up(plan);
  std::vector<size_t> order(plan.seqs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);

  control::StepResult result;
  result.seqs.resize(plan.seqs.size());
  for (const size_t i : order) {
    result.seqs[i] = compute(plan.seqs[i]);
    if (error_every > 0 && random_.below(error_every) == 0) result.seqs[i].error = "NaN";
  }
  for (const control::PromptStep& part : plan.prompts) result.prompts.push_back(yield(plan, part));
  return result;
}

/// Of what was written to the blocks, and of what this slot has added up.
PromptYield OracleExecutor::yield(const control::StepPlan& plan, const control::PromptStep& part) {
  const control::SeqStep& step = plan.seqs.at(part.seq);
  Slot& slot = slots_.at(step.slot);
  const auto at = [&](uint32_t position) { return rating(place(slot, 0, position).content); };
  const auto end = step.first_position + static_cast<uint32_t>(step.tokens.size());
  PromptYield out;
  for (uint32_t row = part.first_row; row < part.end_row; ++row) {
    SampledToken& next = out.rows.emplace_back(row).next;
    next.token = row + 1 < end ? step.tokens[row + 1 - step.first_position] : part.next;
    next.logprob = at(row);
  }
  for (uint32_t p = step.first_position; p < end; ++p) slot.sum += static_cast<uint64_t>(at(p));
  if (part.last && slot.wants.pooling != Pooling::kNone) {
    out.pooled = {slot.wants.pooling == Pooling::kMean ? static_cast<float>(slot.sum) : at(end - 1)};
  }
  return out;
}

void OracleExecutor::forget() { kv_.clear_all(); }

/// All that comes before computing, in the order that step.h gives.
void OracleExecutor::set_up(const control::StepPlan& plan) {
  for (const SlotId slot : plan.removed) {
    if (slots_.erase(slot) == 0) fail(fmt::format("step {}: removes the empty slot {}", plan.step, slot));
  }
  for (const control::NewSeq& added : plan.added) {
    Slot slot{.id = added.sampling.seed,
              .choice = added.sampling.choice,
              .tables = {},
              .computed = {},
              .generation = added.generation,
              .wants = added.wants};
    slot.tables.resize(windows_.size());
    append(slot, added.blocks);
    if (!slots_.emplace(added.slot, slot).second) fail(fmt::format("slot {} given twice", added.slot));
  }
  if (const std::string wrong = kv_.move_and_copy(plan); !wrong.empty()) fail(wrong);
  for (const control::TableUpdate& update : plan.updates) {
    slots_.at(update.slot).tables.at(update.group).at(update.index) = update.block;
    if (!kv_.has(update.block)) fail("an update to no block");
  }
  std::set<BlockId> fresh;
  for (const control::SeqStep& step : plan.seqs) {
    for (const BlockId block : step.new_blocks) {
      if (!fresh.insert(block).second) fail(fmt::format("block {} is given out twice in a step", block));
      kv_.clear(block);
    }
  }
}

control::SeqResult OracleExecutor::compute(const control::SeqStep& step) {
  Slot& slot = slots_.at(step.slot);
  const Solo& expected = solo_.at(slot.id);
  append(slot, step.new_blocks);
  const auto where = fmt::format("sequence {} at position {}", slot.id, step.first_position);
  if (slot.generation != step.generation) fail(where + ": another generation than was added");
  std::vector<TokenId> tokens(step.tokens.begin(), step.tokens.end());
  if (step.is_late()) {
    if (tokens != std::vector{control::kLateToken} || !slot.samples) {
      fail(where + ": a late token of another step");
    }
    tokens = {slot.sampled};
  }
  const auto count = static_cast<uint32_t>(tokens.size());
  const uint32_t end = step.first_position + count;

  if (slot.computed && *slot.computed != step.first_position) fail(where + ": a gap or a repetition");
  if (count == 0) fail(where + ": no tokens");
  for (const auto& table : slot.tables) {
    if (table.size() != (end + block_size_ - 1) / block_size_) fail(where + ": wrong number of blocks");
  }
  if (step.is_late() && end > expected.tokens.size()) {  // it has stopped, which an open step will tell
    slot.computed = end;
    slot.samples = true;
    control::SeqResult none;
    none.token = SampledToken{};
    return none;
  }
  if (end > expected.tokens.size() ||
      !std::equal(tokens.begin(), tokens.end(), expected.tokens.begin() + step.first_position)) {
    fail(where + ": other tokens than alone");
    return {};
  }
  for (uint32_t group = 0; group < windows_.size(); ++group) {
    for (uint32_t p = 0; p < step.first_position; ++p) {
      if (windows_[group] != 0 && p + windows_[group] <= step.first_position) continue;  // out of sight
      const Place& earlier = place(slot, group, p);
      if (earlier.position != p || earlier.content != SyntheticKv::in_group(expected.contents[p], group)) {
        fail(fmt::format("{}: group {}: block {} does not hold its position {}", where, group,
                         slot.tables[group][p / block_size_], p));
      }
    }
    for (uint32_t p = step.first_position; p < end; ++p) {
      place(slot, group, p) = {p, SyntheticKv::in_group(expected.contents[p], group)};
    }
  }
  slot.computed = end;
  slot.samples = false;
  if (step.rows != control::LogitRows::kLast) return {};
  control::SeqResult result;
  const uint64_t content = place(slot, 0, end - 1).content;
  slot.sampled = sample(content, slot.choice);
  slot.samples = true;
  result.token = SampledToken{.token = slot.sampled, .top = {}};
  return result;
}

void OracleExecutor::add_to_digest(const control::StepPlan& plan) {
  const auto add = [&](uint64_t value) { digest_ = mix64(digest_ ^ value); };
  const auto add_all = [&](const auto& values) {
    add(values.size());
    for (const auto value : values) add(static_cast<uint64_t>(value));
  };
  add(plan.step);
  add_all(plan.removed);
  for (const control::NewSeq& added : plan.added) {
    add(added.slot);
    add(added.sampling.seed);
    add_all(added.blocks);
  }
  for (const auto* moves : {&plan.moves_out, &plan.moves_in}) {
    for (const control::BlockMove& move : *moves) add((uint64_t{move.device} << 32) | move.host);
  }
  for (const control::BlockCopy& copy : plan.copies) add((uint64_t{copy.from} << 32) | copy.to);
  for (const control::TableUpdate& update : plan.updates) {
    add(update.slot);
    add((uint64_t{update.index} << 32) | update.block);
    if (update.group > 0) add(update.group);
  }
  for (const control::SeqStep& step : plan.seqs) {
    add(step.slot);
    add(step.first_position);
    add_all(step.tokens);
    add_all(step.new_blocks);
    add(static_cast<uint64_t>(step.rows));
  }
  for (const control::PromptStep& part : plan.prompts) {
    add(part.seq);
    add((uint64_t{part.first_row} << 32) | part.end_row);
    add((static_cast<uint64_t>(part.next) << 1) | (part.last ? 1 : 0));
  }
}

}  // namespace quire::test
