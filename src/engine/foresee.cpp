// The part of the engine that asks its shadow what will become of a request, and tells it what did.
#include <algorithm>

#include "engine/engine_impl.h"

namespace quire::engine {

/// When the next step can begin: the open ones come first.
Nanos Engine::Impl::next_begin() const {
  Nanos begins = clock.now();
  if (open.empty()) return begins;
  Nanos done = open.front().started;
  for (const OpenStep& step : open) done += shadow->time_of(step.plan);
  return std::max(begins, done);
}

/// False if it was refused, since a deadline would not be kept; then the request has ended. `spec`: of its
/// first sequence.
bool Engine::Impl::foresee(ActiveRequest& request, const Arrival& arrival, const control::SeqSpec& spec) {
  const GenerationRequest& asked = arrival.request;
  const uint32_t width = asked.beam_search ? std::max(asked.n, asked.best_of) : asked.sequences();
  const Newcomer newcomer{
      .spec = spec,
      .sequences = width,
      .runs_on = spec.stop_tokens.empty() && asked.stop.empty() && !asked.make_mask_source,
      .ttft_deadline = asked.goes_on ? std::nullopt : asked.ttft_deadline,
      .accepted = asked.goes_on};
  const Outlook outlook =
      shadow->foresee(scheduler.scheduler(), scheduler.cache(), newcomer, next_begin(), observer.budget());
  if (outlook.unkept) {
    const bool never = *outlook.unkept == Unkept::kNever;
    request.news.retry_after = outlook.retry_after;
    end_request(request, control::FinishReason::kError,
                RequestError{never ? RequestErrorCode::kInvalid : RequestErrorCode::kQueueFull,
                             outlook.reason, never ? "ttft_deadline_ms" : ""});
    return false;
  }
  request.foretold =
      Foretold{.first_token = outlook.first_token - arrival.arrived, .end = outlook.end - arrival.arrived};
  request.wants_outlook = asked.wants_outlook;
  if (shadow->promises()) request.due = newcomer.ttft_deadline;
  if (asked.wants_outlook || shadow->promises()) {
    request.tells_outlook = true;
    touch(request);
  }
  return true;
}

void Engine::Impl::note_first_token(ActiveRequest& request, Nanos now) {
  const Nanos took = now - request.arrived;
  if (metrics != nullptr) metrics->time_to_first_token(took);
  if (shadow == nullptr || !request.foretold) return;
  request.foretold->real_first_token = took;
  std::optional<bool> in_time;
  if (request.due) in_time = took <= *request.due;
  shadow->first_token(request.foretold->first_token, took, in_time);
}

/// A choice of it has ended by itself or at its length; perhaps all of them have.
void Engine::Impl::note_end(const ActiveRequest& request, Nanos now) {
  if (shadow == nullptr || !request.foretold || request.foretold->real_first_token < 0) return;
  if (request.ended()) shadow->request_ended(request.foretold->end, now - request.arrived);
}

}  // namespace quire::engine
