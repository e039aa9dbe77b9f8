#include "record/run_tap.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quire::record {

namespace {

/// By block, the K/V group of those that are held or in the prefix index.
std::vector<uint32_t> groups_of(control::Scheduler& scheduler) {
  const control::PrefixCache& cache = scheduler.pool().cache();
  std::vector<uint32_t> groups(cache.num_blocks());
  const auto place = [&](BlockId block, uint32_t group) {
    if (block != kNoBlock) groups[block] = group;
  };
  for (uint32_t group = 0; group < cache.num_groups(); ++group) {
    for (const control::NodeId node : cache.nodes()) place(cache.block(node, group), group);
    for (const control::Sequence* seq : scheduler.running()) {
      for (const BlockId block : seq->table.blocks(group)) place(block, group);
    }
  }
  return groups;
}

}  // namespace

RunStart start_of(control::Scheduler& scheduler, const std::function<std::string(SeqId)>& name) {
  RunStart start{.state = RunState(scheduler),
                 .num_groups = static_cast<uint32_t>(scheduler.config().kv_windows.size()),
                 .budget = scheduler.stats().token_budget};
  if (start.num_groups > 1) start.groups = groups_of(scheduler);
  if (start.budget == 0) start.budget = scheduler.config().max_num_batched_tokens;  // before the first step
  start.sequences.resize(start.state.live().size());
  const auto describe = [&](const control::Sequence& seq) {
    const size_t index = start.state.find(seq.spec.id)->index;
    start.sequences[index] = {name(seq.spec.id), seq.spec.tenant, seq.spec.arrived, seq.spec.priority};
    for (uint32_t group = 0; group < seq.table.num_groups(); ++group) {
      for (const BlockId block : seq.table.blocks(group)) {
        if (block != kNoBlock) start.held.emplace_back(block, index);
      }
    }
  };
  for (const control::Sequence* seq : scheduler.running()) describe(*seq);
  for (const control::Sequence* seq : scheduler.waiting()) describe(*seq);
  return start;
}

void RunTap::Batch::for_each(const std::function<void(const RunEvent&)>& each,
                             const std::function<void(BlockId, uint32_t)>& placed) const {
  RunEvent told;
  for (const Event& event : events) {
    if (const auto* decision = std::get_if<control::Decision>(&event)) {
      told = *decision;
    } else if (const auto* cause = std::get_if<control::Cause>(&event)) {
      told = *cause;
    } else if (const auto* plan = std::get_if<RunPlan>(&event)) {
      told = *plan;
    } else if (const auto* abort = std::get_if<RunAbort>(&event)) {
      told = *abort;
    } else if (const auto* budget = std::get_if<RunBudget>(&event)) {
      told = *budget;
    } else if (const auto* ref = std::get_if<AddRef>(&event)) {
      const Add& add = adds[ref->index];
      RunAdd& made = told.emplace<RunAdd>(add.spec, add.name);
      made.spec.prompt = std::vector<TokenId>(add.prompt);
    } else if (const auto* commit = std::get_if<CommitRef>(&event)) {
      RunCommit& made = told.emplace<RunCommit>();
      made.step = commit->step;
      made.now = commit->now;
      for (size_t i = commit->from; i < commit->to; ++i) {
        RunCommit::Result& result = made.results.emplace_back();
        if (results[i] == Result::kToken) result.token = 0;
        result.failed = results[i] == Result::kFailed;
      }
    } else if (const auto* block = std::get_if<Placed>(&event)) {
      placed(block->block, block->group);
      continue;
    }
    each(told);
  }
}

template <class Append>
void RunTap::append(const Append& append) noexcept {
  if (lost_) return;
  try {
    append();
  } catch (...) {
    lost_ = true;
  }
}

void RunTap::begin(RunStart start) noexcept {
  lost_ = false;
  writing_ = {};
  num_groups_ = start.num_groups;
  const std::lock_guard lock(mutex_);
  settled_ = {};
  settled_.start.emplace(std::move(start));
}

void RunTap::add(const control::SeqSpec& spec, std::string_view name) noexcept {
  append([&] {
    Batch::Add& add = writing_.adds.emplace_back();
    add.spec.id = spec.id;
    add.spec.max_tokens = spec.max_tokens;
    add.spec.fork_of = spec.fork_of;
    add.spec.tenant = spec.tenant;
    add.spec.arrived = spec.arrived;
    add.spec.priority = spec.priority;
    add.prompt = spec.prompt.size();
    add.name = name;
    writing_.events.emplace_back(Batch::AddRef{writing_.adds.size() - 1});
  });
}

void RunTap::take_back_add() noexcept {
  std::erase_if(writing_.events,
                [](const Batch::Event& event) { return std::holds_alternative<Batch::AddRef>(event); });
  writing_.adds.clear();  // each add is settled before the next
}

void RunTap::abort(SeqId id, bool stop_string) noexcept {
  append([&] { writing_.events.emplace_back(RunAbort{id, stop_string}); });
}

void RunTap::set_budget(uint32_t tokens) noexcept {
  append([&] { writing_.events.emplace_back(RunBudget{tokens}); });
}

void RunTap::plan(uint64_t step, Nanos now) noexcept {
  append([&] { writing_.events.emplace_back(RunPlan{step, now}); });
}

/// The same number of blocks for each group, one group after the other.
void RunTap::place(std::span<const BlockId> blocks) {
  const size_t each = blocks.size() / num_groups_;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] != kNoBlock)
      writing_.events.emplace_back(Batch::Placed{blocks[i], static_cast<uint32_t>(i / each)});
  }
}

void RunTap::planned(const control::StepPlan& plan) noexcept {
  if (num_groups_ == 1) return;
  append([&] {
    for (const control::NewSeq& seq : plan.added) place(seq.blocks);
    for (const control::SeqStep& step : plan.seqs) place({step.new_blocks.data(), step.new_blocks.size()});
    for (const control::TableUpdate& update : plan.updates)
      writing_.events.emplace_back(Batch::Placed{update.block, update.group});
  });
}

void RunTap::commit(uint64_t step, const control::StepResult& result, Nanos now) noexcept {
  append([&] {
    const size_t from = writing_.results.size();
    for (const control::SeqResult& seq : result.seqs) {
      writing_.results.push_back(!seq.error.empty() ? Batch::Result::kFailed
                                 : seq.token        ? Batch::Result::kToken
                                                    : Batch::Result::kNone);
    }
    writing_.events.emplace_back(Batch::CommitRef{step, now, from, writing_.results.size()});
  });
}

void RunTap::take(const control::Decision& decision) noexcept {
  append([&] { writing_.events.emplace_back(decision); });
}

void RunTap::take(const control::Cause& cause) noexcept {
  append([&] { writing_.events.emplace_back(cause); });
}

void RunTap::settle() noexcept {
  append([&] {
    const std::lock_guard lock(mutex_);
    if (settled_.lost) return;
    if (settled_.events.empty()) {
      std::swap(settled_.events, writing_.events);
      std::swap(settled_.adds, writing_.adds);
      std::swap(settled_.results, writing_.results);
    } else {
      const size_t adds = settled_.adds.size();
      const size_t results = settled_.results.size();
      for (Batch::Event& event : writing_.events) {
        if (auto* add = std::get_if<Batch::AddRef>(&event)) add->index += adds;
        if (auto* commit = std::get_if<Batch::CommitRef>(&event)) {
          commit->from += results;
          commit->to += results;
        }
      }
      settled_.events.insert(settled_.events.end(), writing_.events.begin(), writing_.events.end());
      std::ranges::move(writing_.adds, std::back_inserter(settled_.adds));
      settled_.results.insert(settled_.results.end(), writing_.results.begin(), writing_.results.end());
    }
    if (settled_.events.size() > kMostWaiting) throw Error("too many events wait");
  });
  writing_.events.clear();
  writing_.adds.clear();
  writing_.results.clear();
  if (!lost_) return;
  const std::lock_guard lock(mutex_);
  settled_ = {};
  settled_.lost = true;
}

RunTap::Batch RunTap::take() {
  const std::lock_guard lock(mutex_);
  Batch batch = std::move(settled_);
  settled_ = {};
  settled_.lost = batch.lost;
  return batch;
}

}  // namespace quire::record
