#include "backend/sync/sync_executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/describe.h"

namespace quire::backend::sync {
namespace {

Nanos since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

SyncExecutor::SyncExecutor(StepModel& model, const SlotTable::Limits& limits, ThreadPool& pool)
    : model_(model),
      pool_(pool),
      vocab_size_(limits.vocab_size),
      slots_(limits),
      samplers_(limits.num_slots),
      prompts_(model, pool, limits.num_slots, vocab_size_) {
  for (uint32_t i = 0; i < pool.num_threads(); ++i) workspaces_.emplace_back(vocab_size_);
  masks_.resize(pool.num_threads());
  seqs_.reserve(limits.num_slots);
  rows_.reserve(limits.num_slots);
}

Ticket SyncExecutor::submit(const control::StepPlan& plan) {
  open_.check_room(plan);
  const auto start = std::chrono::steady_clock::now();
  slots_.apply(plan);
  for (const control::NewSeq& seq : plan.added) {
    samplers_[seq.slot].reset(seq.sampling, seq.history, seq.prompt_length);
    prompts_.reset(seq.slot);
  }
  move_blocks(plan);
  control::StepResult result;
  result.seqs.resize(plan.seqs.size());
  gather(plan, result);
  if (!seqs_.empty()) model_.compute(tokens_, seqs_);
  if (!plan.prompts.empty()) prompts_.take(plan, slots_, starts_, workspaces_, result);
  // The last use of the model in this step: late rows need their logits in provide().
  if (!seqs_.empty()) logits_ = model_.logits(places_);
  result.times.compute = since(start);
  const auto sampling = std::chrono::steady_clock::now();
  sample(rows_, nullptr, result);
  result.times.sample = since(sampling);
  return open_.push(std::move(result), !late_rows_.empty());
}

void SyncExecutor::provide(Ticket ticket, TokenMasks& masks) {
  const auto start = std::chrono::steady_clock::now();
  control::StepResult* const result = open_.provide(ticket);
  if (result == nullptr) return;
  sample(late_rows_, &masks, *result);
  result->times.sample += since(start);
}

control::StepResult SyncExecutor::wait(Ticket ticket) { return open_.take(ticket); }

void SyncExecutor::move_blocks(const control::StepPlan& plan) {
  for (const control::BlockMove& move : plan.moves_out) model_.move_out(move);
  for (const control::BlockMove& move : plan.moves_in) model_.move_in(move);
  model_.copy(plan.copies);
}

void SyncExecutor::gather(const control::StepPlan& plan, control::StepResult& result) {
  tokens_.clear();
  seqs_.clear();
  rows_.clear();
  late_rows_.clear();
  places_.clear();
  starts_.clear();
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const control::SeqStep& seq = plan.seqs[i];
    const std::span<const TokenId> tokens = slots_.advance(seq);
    starts_.push_back(static_cast<uint32_t>(tokens_.size()));
    if (tokens.empty()) {
      result.seqs[i].error = "its last token could not be sampled";
      continue;
    }
    const bool sampled = seq.rows == control::LogitRows::kLast;
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    if (sampled) {
      auto& rows = samplers_[seq.slot].params().mask == kNoMask ? rows_ : late_rows_;
      rows.push_back({static_cast<uint32_t>(places_.size()), static_cast<uint32_t>(i), seq.slot,
                      slots_.computed(seq.slot)});
      places_.push_back(static_cast<uint32_t>(tokens_.size()) - 1);
    }
    seqs_.push_back({.num_tokens = static_cast<uint32_t>(tokens.size()),
                     .first_position = seq.first_position,
                     .block_tables = slots_.tables(seq.slot)});
  }
}

void SyncExecutor::sample(std::span<const Row> rows, TokenMasks* masks, control::StepResult& result) {
  // Room for the results first: the threads allocate nothing.
  for (const Row& row : rows) {
    control::SeqResult& out = result.seqs[row.seq];
    out.token.emplace();
    out.token->top.reserve(samplers_[row.slot].params().most_logprobs());
  }
  pool_.parallel_for(rows.size(), 1, [&](size_t begin, size_t end, uint32_t thread) {
    for (const Row& row : rows.subspan(begin, end - begin)) {
      control::SeqResult& out = result.seqs[row.seq];
      std::span<const uint32_t> mask;
      if (masks != nullptr && out.error.empty()) mask = mask_of(row, thread, *masks, out);
      if (out.error.empty()) {
        sample::NoToken none =
            samplers_[row.slot].sample(logits_.subspan(size_t{row.index} * vocab_size_, vocab_size_),
                                       row.position, workspaces_[thread], *out.token, mask);
        out.error = std::move(none.why);
        out.refused = none.refused;
      }
      if (!out.error.empty()) out.token.reset();
    }
  });
  for (const Row& row : rows) {
    const control::SeqResult& out = result.seqs[row.seq];
    if (out.error.empty()) slots_.sampled(row.slot, out.token->token);
  }
}

std::span<const uint32_t> SyncExecutor::mask_of(const Row& row, uint32_t thread, TokenMasks& masks,
                                                control::SeqResult& out) {
  std::vector<uint32_t>& mask = masks_[thread];
  try {
    mask.assign(mask_words(vocab_size_), UINT32_MAX);
    masks.fill(samplers_[row.slot].params().mask, mask);
    return mask;
  } catch (const MaskRefused& refused) {
    out.error = refused.what();
    out.refused = true;
  } catch (...) {
    out.error = describe_current_exception();
  }
  return {};
}

}  // namespace quire::backend::sync
