#include "engine/beam_run.h"

#include <algorithm>
#include <utility>

namespace quire::engine {

BeamRun::BeamRun(GenerationRequest request, control::SeqSpec& first)
    : request_(std::move(request)),
      search_(request_.sequences(), request_.length_penalty, std::exchange(first.stop_tokens, {}),
              first.max_tokens, first.id) {
  first.sampling = {};
  first.sampling.temperature = 0;
  first.sampling.num_logprobs =
      std::max(static_cast<int32_t>(2 * request_.sequences()), request_.sampling.num_logprobs);
  spec_ = first;
}

BeamRun::Changes BeamRun::advance(SeqId& next) {
  BeamSearch::Changes changes = search_.advance(next);
  Changes out;
  out.ended = std::move(changes.ended);
  for (const BeamSearch::Fork& fork : changes.forks) {
    control::SeqSpec& spec = out.added.emplace_back(spec_);
    spec.id = fork.id;
    spec.fork_of = fork.parent;
    std::vector<TokenId>& prompt = spec.prompt.write();
    prompt.insert(prompt.end(), fork.tokens.begin(), fork.tokens.end());
    spec.max_tokens -= static_cast<uint32_t>(fork.tokens.size());
  }
  return out;
}

std::vector<ChoiceOutput> BeamRun::answers(const tokenize::Tokenizer& tokenizer) const {
  std::vector<ChoiceOutput> out;
  const auto shown = static_cast<size_t>(std::max(request_.sampling.num_logprobs, 0));
  for (Hypothesis& hypothesis : search_.best(request_.n)) {
    const auto index = static_cast<uint32_t>(out.size());
    Choice choice(spec_.id, index, request_, tokenizer);
    out.emplace_back().index = index;
    for (SampledToken& token : hypothesis.tokens) {
      const bool last = &token == &hypothesis.tokens.back();
      control::SeqEvent event;
      if (last)
        event.finish = hypothesis.stopped ? control::FinishReason::kStop : control::FinishReason::kLength;
      if (last && hypothesis.stopped) event.stop_token = token.token;
      token.top.resize(std::min(shown, token.top.size()));
      event.token = std::move(token);
      choice.take(event, out.back());
    }
  }
  return out;
}

}  // namespace quire::engine
