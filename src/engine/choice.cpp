#include "engine/choice.h"

#include <algorithm>
#include <exception>

namespace quire::engine {

Choice::Choice(SeqId seq, uint32_t index, const GenerationRequest& request,
               const tokenize::Tokenizer& tokenizer)
    : seq_(seq),
      index_(index),
      min_tokens_(request.sampling.min_tokens),
      show_stop_token_(request.include_stop_str_in_output),
      detokenizer_(tokenizer, request.skip_special_tokens, request.shown_special_tokens),
      stops_(request.stop, request.include_stop_str_in_output) {
  // A text that continues the prompt keeps the space between them, which a decoder would strip at the
  // beginning of a text.
  constexpr size_t kContext = 16;
  const size_t first = request.prompt.size() - std::min(kContext, request.prompt.size());
  for (size_t i = first; i < request.prompt.size(); ++i) detokenizer_.push(request.prompt[i]);
}

void Choice::append(std::string_view piece, ChoiceOutput& out, bool& stopped) {
  if (stopped) return;
  StopMatcher::Result result = stops_.push(piece);
  out.text += result.text;
  if (result.stop) {
    stopped = true;
    out.stop_string = std::move(result.stop);
  }
}

bool Choice::take(const control::SeqEvent& event, ChoiceOutput& out) {
  bool stopped = false;
  if (event.token) {
    ++num_tokens_;
    out.tokens.push_back(*event.token);
    const bool shown = !event.stop_token || show_stop_token_;
    if (shown && num_tokens_ <= min_tokens_) {
      out.text += detokenizer_.push(event.token->token);
    } else if (shown) {
      append(detokenizer_.push(event.token->token), out, stopped);
    }
  }
  if (event.finish && !stopped) append(detokenizer_.flush(), out, stopped);
  if (stopped) {
    out.finish = control::FinishReason::kStop;
  } else if (event.finish) {
    out.text += stops_.flush();
    out.finish = event.finish;
    out.stop_token = event.stop_token;
  }
  ended_ = out.finish.has_value();
  return stopped;
}

void Choice::end(control::FinishReason reason, ChoiceOutput& out) {
  bool stopped = false;
  ended_ = true;
  out.finish = reason;
  try {
    append(detokenizer_.flush(), out, stopped);
    if (!stopped) out.text += stops_.flush();
  } catch (const std::exception&) {
    // It may end because its tokens have no text; then the text held back is lost.
    stopped = false;
  }
  if (stopped) out.finish = control::FinishReason::kStop;
}

}  // namespace quire::engine
