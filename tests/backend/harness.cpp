#include "tests/backend/harness.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/rng.h"
#include "tests/backend/hash_masks.h"

namespace quire::test {
namespace {

void record(const control::Scheduler& scheduler, const control::StepPlan& plan, RunLog& log) {
  const control::StepStats& stats = scheduler.stats();
  ++log.steps;
  log.most_decoding = std::max(log.most_decoding, stats.decode_tokens);
  log.most_prefill = std::max(log.most_prefill, stats.prefill_tokens);
  log.preemptions = stats.total_preemptions;
  log.hit_tokens = stats.total_prefix_hit_tokens;
  log.copies = stats.total_copies;
  log.swapped_out += stats.swapped_out;
  log.swapped_in += stats.swapped_in;
  log.blocks_left = stats.blocks_referenced;
  for (const control::SeqStep& seq : plan.seqs) {
    log.chunked += seq.rows == control::LogitRows::kNone ? 1 : 0;
    log.late_tokens += seq.is_late() ? 1 : 0;
  }
}

bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

bool same(const SampledToken& a, const SampledToken& b) {
  return a.token == b.token && a.rank == b.rank && same_bits(a.logprob, b.logprob) &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(),
                    [](const TokenLogprob& x, const TokenLogprob& y) {
                      return x.token == y.token && same_bits(x.logprob, y.logprob);
                    });
}

bool same(const PromptYield& a, const PromptYield& b) {
  const auto same_row = [](const PromptRow& x, const PromptRow& y) {
    return x.row == y.row && same(x.next, y.next);
  };
  return std::ranges::equal(a.rows, b.rows, same_row) && std::ranges::equal(a.pooled, b.pooled, same_bits);
}

PromptWants mixed_wants(uint32_t i) {
  PromptWants wants;
  if (i % 4 == 1 || i % 8 == 7) wants = {.logprobs = static_cast<int32_t>(i % 3 * 2), .first_row = i % 5 * 9};
  if (i % 4 == 2) wants.pooling = Pooling::kLast;
  if (i % 4 == 3) wants.pooling = Pooling::kMean;
  return wants;
}

SamplingParams mixed_sampling(uint32_t i, uint32_t vocab_size) {
  SamplingParams params;
  params.num_logprobs = 5;
  params.seed = 1000 + i;
  params.temperature = i % 4 == 0 ? 0.0F : 0.4F + 0.2F * static_cast<float>(i % 5);
  if (i % 3 == 1) params.top_k = 40;
  if (i % 5 == 2) params.top_p = 0.9F;
  if (i % 7 == 3) params.min_p = 0.02F;
  if (i % 6 == 0) params.repetition_penalty = 1.2F;
  if (i % 6 == 2) params.presence_penalty = 0.7F;
  if (i % 6 == 4) params.frequency_penalty = 0.5F;
  if (i % 5 == 1 && i > 5) params.mask = 0;  // run_to_end numbers them
  if (i % 9 == 7) params.logprob_tokens = {static_cast<TokenId>(i), 0, static_cast<TokenId>(vocab_size - 1)};
  if (i % 8 == 5) params.logit_bias = {{1, 2.0F}, {static_cast<TokenId>(vocab_size - 1), -3.0F}};
  if (i % 8 == 6) {
    params.min_tokens = 5;
    params.end_tokens = {0, 1, 2};
    for (TokenId id = 0; id < 40; ++id) params.bad_words.write().push_back({id + 10, id + 11});
    for (uint32_t id = i; id < vocab_size; id += 3)
      params.allowed_tokens.write().push_back(static_cast<TokenId>(id));
  }
  return params;
}

}  // namespace

std::vector<Continuation> run_to_end(control::Scheduler& scheduler, backend::Executor& executor,
                                     const std::vector<control::SeqSpec>& specs, RunLog& log,
                                     uint32_t depth) {
  std::map<SeqId, Continuation> found;
  HashMasks masks;
  for (const control::SeqSpec& spec : specs) {
    if (const auto added = scheduler.add(masks.number(spec)); !added)
      throw std::runtime_error(added.error().message);
    found[spec.id] = {};
  }
  std::deque<std::pair<control::StepPlan, backend::Ticket>> open;
  bool owes_masks = false;
  const auto provide = [&] {
    if (open.size() == 1 && std::exchange(owes_masks, false)) executor.provide(open.front().second, masks);
  };
  while (scheduler.has_work() || !open.empty()) {
    while (open.size() < depth && !owes_masks && scheduler.has_work()) {
      control::StepPlan plan = scheduler.plan();
      if (plan.empty()) break;
      const backend::Ticket ticket = executor.submit(plan);
      open.emplace_back(std::move(plan), ticket);
      owes_masks = !masks.empty();
      provide();
    }
    if (open.empty()) throw std::runtime_error("the scheduler makes no progress");
    const auto [plan, ticket] = std::move(open.front());
    open.pop_front();
    std::vector<control::SeqEvent> events = scheduler.commit(plan, executor.wait(ticket));
    for (control::PromptEvent& event : scheduler.prompts()) {
      PromptYield& all = found.at(event.id).prompt;
      if (!found.at(event.id).tokens.empty()) throw std::runtime_error("a part of a prompt after a token");
      std::ranges::move(event.yield.rows, std::back_inserter(all.rows));
      all.pooled.insert(all.pooled.end(), event.yield.pooled.begin(), event.yield.pooled.end());
    }
    for (control::SeqEvent& event : events) {
      Continuation& one = found.at(event.id);
      if (event.token) masks.accept(event.id, event.token->token);
      if (event.token) one.tokens.push_back(std::move(*event.token));
      if (one.tokens.size() <= 1) one.cached_tokens = event.cached_tokens;
      if (event.finish) one.finish = *event.finish;
      if (!event.error.empty()) one.error = event.error;
    }
    provide();
    record(scheduler, plan, log);
    if (const std::string broken = scheduler.check_invariants(); !broken.empty()) {
      throw std::runtime_error("broken invariant: " + broken);
    }
  }
  std::vector<Continuation> out;
  for (const control::SeqSpec& spec : specs) out.push_back(std::move(found.at(spec.id)));
  return out;
}

std::vector<control::SeqSpec> mixed_requests(uint32_t vocab_size, uint32_t count, uint32_t max_tokens) {
  std::vector<control::SeqSpec> out;
  for (uint32_t i = 0; i < count; ++i) {
    control::SeqSpec spec;
    spec.id = i;
    spec.max_tokens = i % 8 == 7 ? 0 : max_tokens;
    spec.wants = mixed_wants(i);
    spec.sampling = mixed_sampling(i, vocab_size);
    SplitMix64 beginning(i % 4);
    for (int t = 0; t < 18; ++t) spec.prompt.push_back(static_cast<TokenId>(beginning.below(vocab_size)));
    SplitMix64 own(100 + i);
    const uint64_t length = 2 + own.below(40);
    for (uint64_t t = 0; t < length; ++t) spec.prompt.push_back(static_cast<TokenId>(own.below(vocab_size)));
    out.push_back(std::move(spec));
  }
  return out;
}

std::string difference(const std::vector<Continuation>& a, const std::vector<Continuation>& b) {
  if (a.size() != b.size()) return fmt::format("{} sequences and {}", a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].error != b[i].error) return fmt::format("sequence {}: '{}' and '{}'", i, a[i].error, b[i].error);
    if (a[i].finish != b[i].finish) return fmt::format("sequence {} ends in different ways", i);
    if (a[i].tokens.size() != b[i].tokens.size()) {
      return fmt::format("sequence {}: {} tokens and {}", i, a[i].tokens.size(), b[i].tokens.size());
    }
    if (!same(a[i].prompt, b[i].prompt)) return fmt::format("sequence {}: other rows of its prompt", i);
    for (size_t t = 0; t < a[i].tokens.size(); ++t) {
      const SampledToken& x = a[i].tokens[t];
      const SampledToken& y = b[i].tokens[t];
      if (!same(x, y)) {
        return fmt::format("sequence {}, token {}: {} ({:.9g}) and {} ({:.9g})", i, t, x.token, x.logprob,
                           y.token, y.logprob);
      }
    }
  }
  return {};
}

}  // namespace quire::test
