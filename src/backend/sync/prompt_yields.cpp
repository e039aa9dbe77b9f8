#include "backend/sync/prompt_yields.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace quire::backend::sync {

std::span<const uint32_t> PromptYields::places(uint32_t first, size_t count) {
  places_.resize(count);
  std::iota(places_.begin(), places_.end(), first);
  return places_;
}

void PromptYields::take(const control::StepPlan& plan, const SlotTable& slots,
                        std::span<const uint32_t> starts, std::vector<sample::SamplerWorkspace>& workspaces,
                        control::StepResult& result) {
  result.prompts.resize(plan.prompts.size());
  for (size_t i = 0; i < plan.prompts.size(); ++i) {
    const control::PromptStep& part = plan.prompts[i];
    const control::SeqStep& seq = plan.seqs[part.seq];
    const Chunk chunk{part, seq, starts[part.seq], slots.wants(seq.slot)};
    PromptYield& out = result.prompts[i];
    add_rows(chunk, workspaces, out, result.seqs[part.seq].error);
    if (chunk.wants.pooling == Pooling::kMean) add_to_mean(chunk);
    if (!part.last || chunk.wants.pooling == Pooling::kNone) continue;
    if (chunk.wants.pooling == Pooling::kMean) {
      const auto count = static_cast<double>(slots.prompt_length(seq.slot));
      for (const double sum : sums_[seq.slot]) out.pooled.push_back(static_cast<float>(sum / count));
    } else {
      const auto last = static_cast<uint32_t>(seq.tokens.size()) - 1;
      const std::span<const float> state = model_.hidden(places(chunk.place + last, 1));
      out.pooled.assign(state.begin(), state.end());
    }
  }
}

void PromptYields::add_rows(const Chunk& chunk, std::vector<sample::SamplerWorkspace>& workspaces,
                            PromptYield& out, std::string& error) {
  const control::PromptStep& part = chunk.part;
  const uint32_t position = chunk.seq.first_position;
  const auto k = static_cast<size_t>(std::max(chunk.wants.logprobs, 0));
  out.rows.resize(part.end_row - part.first_row);
  for (uint32_t first = part.first_row; first < part.end_row; first += kMostRows) {
    const size_t count = std::min<size_t>(kMostRows, part.end_row - first);
    const std::span<const float> logits = model_.logits(places(chunk.place + first - position, count));
    errors_.assign(count, {});
    const std::span<PromptRow> rows = std::span(out.rows).subspan(first - part.first_row, count);
    for (PromptRow& row : rows) row.next.top.reserve(k);  // the threads allocate nothing
    pool_.parallel_for(count, 1, [&](size_t begin, size_t end, uint32_t thread) {
      for (size_t i = begin; i < end; ++i) {
        rows[i].row = first + static_cast<uint32_t>(i);
        const uint32_t next = rows[i].row + 1;
        const TokenId token = next == part.end_row ? part.next : chunk.seq.tokens[next - position];
        errors_[i] = sample::rate_token(logits.subspan(i * vocab_size_, vocab_size_), next, token,
                                        chunk.wants.logprobs, workspaces[thread], rows[i].next);
      }
    });
    for (std::string& one : errors_) {
      if (error.empty()) error = std::move(one);
    }
  }
}

/// In order of position, whatever the chunks.
void PromptYields::add_to_mean(const Chunk& chunk) {
  std::vector<double>& sum = sums_[chunk.seq.slot];
  for (size_t first = 0; first < chunk.seq.tokens.size(); first += kMostRows) {
    const size_t count = std::min(kMostRows, chunk.seq.tokens.size() - first);
    const std::span<const float> states =
        model_.hidden(places(chunk.place + static_cast<uint32_t>(first), count));
    const size_t hidden = states.size() / count;
    sum.resize(hidden);
    for (size_t i = 0; i < states.size(); ++i) sum[i % hidden] += static_cast<double>(states[i]);
  }
}

}  // namespace quire::backend::sync
