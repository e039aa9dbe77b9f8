#include "backend/cuda/cuda_executor.h"

#include <utility>

#include <fmt/format.h>

#include "base/describe.h"

namespace quire::backend::cuda {

CudaExecutor::CudaExecutor(DeviceModel& model, const SlotTable::Limits& limits, ThreadPool& pool,
                           uint32_t depth)
    : depth_(depth),
      model_(model),
      pool_(pool),
      vocab_size_(limits.vocab_size),
      slots_(limits),
      tenants_(limits.num_slots),
      block_size_(limits.block_size),
      mover_(model, limits.num_blocks),
      sampler_(sampler_limits(limits.num_slots, limits.max_positions, limits.vocab_size), model.stream()),
      prompts_(model, pool, limits.num_slots, vocab_size_) {
  for (uint32_t i = 0; i < pool.num_threads(); ++i) workspaces_.emplace_back(vocab_size_);
}

CudaExecutor::~CudaExecutor() {
  try {
    model_.use();
    synchronize(model_.stream());
  } catch (const std::exception&) {  // whoever waited for its steps has been told
  }
}

Ticket CudaExecutor::submit(const control::StepPlan& plan) {
  open_.check_room(plan);
  model_.use();
  const Stream stream = model_.stream();
  OpenStep step;
  step.ticket = open_.next_ticket();
  step.lane = static_cast<uint32_t>(step.ticket % kMostOpenSteps);
  step.result.seqs.resize(plan.seqs.size());
  Lane& lane = lanes_[step.lane];
  lane.started.record(stream);
  start(plan);
  gather(plan, step);
  for (const control::BlockCopy& copy : plan.copies) mover_.writes(copy.to, step.ticket);
  mover_.order();
  model_.copy(plan.copies);
  if (!seqs_.empty()) model_.compute(tokens_, seqs_, late_tokens_, sampler_.tokens());
  if (!plan.prompts.empty()) prompts_.take(plan, slots_, starts_, workspaces_, step.result);
  // The last use of the model in this step: late rows need their logits in provide().
  if (!places_.empty()) logits_ = model_.logits_on_device(places_);
  lane.computed.record(stream);
  sampler_.begin(step.lane);
  sample(step, step.rows);
  lane.sampled.record(stream);
  lane.done.record(stream);
  const bool lacks_rows = !step.late_rows.empty();
  return open_.push(std::move(step), lacks_rows);
}

/// What the plan changes before its sequences compute.
void CudaExecutor::start(const control::StepPlan& plan) {
  slots_.apply(plan);
  for (const control::NewSeq& seq : plan.added) {
    tenants_[seq.slot] = std::make_shared<Tenant>();
    tenants_[seq.slot]->sampling.reset(seq.sampling, seq.history, seq.prompt_length);
    prompts_.reset(seq.slot);
  }
  const OpenStep* const before = open_.newest();
  mover_.start(plan, before == nullptr ? nullptr : &lanes_[before->lane].done);
}

void CudaExecutor::gather(const control::StepPlan& plan, OpenStep& step) {
  tokens_.clear();
  seqs_.clear();
  late_tokens_.clear();
  places_.clear();
  starts_.clear();
  for (uint32_t i = 0; i < plan.seqs.size(); ++i) {
    const control::SeqStep& seq = plan.seqs[i];
    const std::span<const TokenId> tokens = slots_.advance(seq);
    const std::shared_ptr<Tenant>& tenant = tenants_[seq.slot];
    const auto first = static_cast<uint32_t>(tokens_.size());
    starts_.push_back(first);
    tenant->stepped = step.ticket;
    if (seq.is_late() && tenant->failed) {
      step.result.seqs[i].error = "its last token could not be sampled";
      continue;
    }
    if (seq.is_late() && tokens.empty()) {
      late_tokens_.push_back({first, token_place(seq.slot, seq.first_position)});
      step.late_seqs.push_back({i, tenant});
      tokens_.push_back(0);
    } else {
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    }
    if (seq.rows == control::LogitRows::kLast) {
      auto& rows = tenant->sampling.params().mask == kNoMask ? step.rows : step.late_rows;
      rows.push_back({.logits = static_cast<uint32_t>(places_.size()),
                      .seq = i,
                      .slot = seq.slot,
                      .tenant = tenant,
                      .position = slots_.computed(seq.slot)});
      places_.push_back(static_cast<uint32_t>(tokens_.size()) - 1);
    }
    seqs_.push_back({.num_tokens = static_cast<uint32_t>(tokens_.size()) - first,
                     .first_position = seq.first_position,
                     .block_tables = slots_.tables(seq.slot)});
    note_writes(seq, step.ticket);
  }
}

void CudaExecutor::note_writes(const control::SeqStep& seq, Ticket step) {
  const uint32_t first = seq.first_position / block_size_;
  const uint32_t last = (slots_.computed(seq.slot) - 1) / block_size_;
  for (const std::vector<BlockId>& table : slots_.tables(seq.slot)) {
    for (uint32_t i = first; i <= last; ++i) mover_.writes(table[i], step);
  }
}

/// Those of the newest step that have not failed yet.
void CudaExecutor::sample(OpenStep& step, std::vector<Row>& rows) {
  if (rows.empty()) return;
  for (Row& row : rows) {
    control::SeqResult& out = step.result.seqs[row.seq];
    if (!out.error.empty()) continue;
    row.result = sampler_.add(row.tenant->sampling, row.slot, row.position, row.logits, logits_, row.mask);
    if (row.result != DeviceSampler::kNoRow) continue;
    out.error = "its bad_words are more than there is memory for on the device";
    out.refused = true;
  }
  sampler_.flush(logits_);
}

void CudaExecutor::provide(Ticket ticket, TokenMasks& masks) {
  OpenStep* const open = open_.provide(ticket);
  if (open == nullptr) return;
  OpenStep& step = *open;
  model_.use();
  Lane& lane = lanes_[step.lane];
  lane.masked.record(model_.stream());
  pool_.parallel_for(step.late_rows.size(), 1, [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      Row& row = step.late_rows[i];
      control::SeqResult& out = step.result.seqs[row.seq];
      if (out.error.empty()) fill_mask(row, masks, out);
    }
  });
  sample(step, step.late_rows);
  lane.done.record(model_.stream());
  step.has_late_times = true;
}

void CudaExecutor::fill_mask(Row& row, TokenMasks& masks, control::SeqResult& out) const {
  try {
    row.mask.assign(mask_words(vocab_size_), UINT32_MAX);
    masks.fill(row.tenant->sampling.params().mask, row.mask);
  } catch (const MaskRefused& refused) {
    out.error = refused.what();
    out.refused = true;
  } catch (...) {
    out.error = describe_current_exception();
  }
}

control::StepResult CudaExecutor::wait(Ticket ticket) {
  OpenStep step = open_.take(ticket);
  model_.use();
  const Lane& lane = lanes_[step.lane];
  lane.done.wait();
  mover_.done(ticket);
  for (const LateSeq& late : step.late_seqs) {
    if (late.tenant->failed) step.result.seqs[late.seq].error = "its last token could not be sampled";
  }
  for (const Row& row : step.rows) take(step, row, step.result.seqs[row.seq]);
  for (const Row& row : step.late_rows) take(step, row, step.result.seqs[row.seq]);
  step.result.times.compute = lane.computed.since(lane.started);
  step.result.times.sample = lane.sampled.since(lane.computed);
  if (step.has_late_times) step.result.times.sample += lane.done.since(lane.masked);
  return std::move(step.result);
}

/// What became of a row, for its sequence and for the steps after this one.
void CudaExecutor::take(const OpenStep& step, const Row& row, control::SeqResult& out) {
  const SampledRow* sampled =
      row.result == DeviceSampler::kNoRow ? nullptr : &sampler_.result(step.lane, row.result);
  if (out.error.empty() && sampled->status != SampleStatus::kToken) {
    out.error = why_no_token(step, row, out.refused);
  }
  if (!out.error.empty()) {
    row.tenant->failed = true;
    return;
  }
  SampledToken& token = out.token.emplace();
  token.token = sampled->token;
  token.logprob = sampled->logprob;
  token.rank = sampled->rank;
  token.top.assign(sampled->top, sampled->top + sampled->num_top);
  const SamplingParams& params = row.tenant->sampling.params();
  if (params.num_logprobs >= 0 && !params.logprob_tokens.empty()) {
    const std::span<const float> rated = sampler_.rated(step.lane, row.result);
    token.top.assign(1, {token.token, token.logprob});
    for (size_t i = 0; i < rated.size(); ++i) {
      const TokenId id = params.logprob_tokens[i];
      if (id != token.token) token.top.push_back({id, rated[i]});
    }
  }
  row.tenant->sampling.add(token.token);
  // Unless a later step has computed it already, or given the slot away.
  if (row.tenant->stepped == step.ticket && tenants_[row.slot] == row.tenant) {
    slots_.sampled(row.slot, token.token);
  }
}

std::string CudaExecutor::why_no_token(const OpenStep& step, const Row& row, bool& refused) const {
  const SampledRow& sampled = sampler_.result(step.lane, row.result);
  if (sampled.status == SampleStatus::kNotFinite) {
    return fmt::format("the logits for position {} are not finite: {} for token {}", row.position,
                       sampled.logprob, sampled.token);
  }
  refused = true;
  return row.tenant->sampling.why_no_token(row.position, row.mask, vocab_size_).why;
}

}  // namespace quire::backend::cuda
