#include "engine/active_request.h"

#include <cmath>

namespace quire::engine {
namespace {

double logprob_per_token(const ChoiceOutput& choice) {
  if (choice.tokens.empty() || choice.finish == control::FinishReason::kError) return -INFINITY;
  double sum = 0;
  for (const SampledToken& token : choice.tokens) sum += token.logprob;
  return sum / static_cast<double>(choice.tokens.size());
}

}  // namespace

uint32_t ActiveRequest::completion_tokens() const {
  uint32_t sum = 0;
  for (const Choice& choice : choices) sum += choice.num_tokens();
  if (beams == nullptr) return sum;
  for (const ChoiceOutput& answer : news.choices) sum += static_cast<uint32_t>(answer.tokens.size());
  return sum;
}

uint32_t ActiveRequest::most_tokens() const {
  size_t most = 0;
  for (const Choice& choice : choices) most = std::max<size_t>(most, choice.num_tokens());
  if (beams == nullptr) return static_cast<uint32_t>(most);
  for (const ChoiceOutput& answer : news.choices) most = std::max(most, answer.tokens.size());
  return static_cast<uint32_t>(most);
}

void ActiveRequest::keep_best() {
  if (answers >= news.choices.size()) return;
  std::ranges::sort(news.choices, {}, &ChoiceOutput::index);
  std::ranges::stable_sort(news.choices, std::ranges::greater(), logprob_per_token);
  news.choices.resize(answers);
  for (uint32_t i = 0; i < answers; ++i) news.choices[i].index = i;
}

}  // namespace quire::engine
