#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/engine_impl.h"

namespace quire::engine {
namespace {

RequestError error_of(control::SeqEvent&& event) {
  return {
      event.refused ? RequestErrorCode::kInvalid : RequestErrorCode::kInternal, std::move(event.error), {}};
}

}  // namespace

void Engine::Impl::touch(ActiveRequest& request) {
  if (request.touched) return;
  touched.push_back(&request);
  request.touched = true;  // only once it is in the list: push_back may throw
}

void Engine::Impl::note_plan(Nanos now) {
  if (bounds_tenants()) {
    for (const SeqId id : scheduler.preempted()) tenants.preempt(id);
    for (const SeqId id : scheduler.admitted()) tenants.admit(id);
  }
  for (const SeqId id : scheduler.admitted()) {
    const auto owner = request_of.find(id);
    if (owner == request_of.end()) continue;
    const auto found = requests.find(owner->second);
    if (found == requests.end()) continue;
    ActiveRequest& request = found->second;
    SequenceTimes& times = request.times[request.beams != nullptr ? 0 : id - request.choices.front().seq()];
    if (times.admitted < 0) times.admitted = now;
  }
}

void Engine::Impl::deliver(std::vector<control::SeqEvent> events, Nanos now) {
  for (control::PromptEvent& event : scheduler.prompts()) deliver(std::move(event));
  for (control::SeqEvent& event : events) {
    const auto owner = request_of.find(event.id);
    if (owner == request_of.end()) continue;  // ended by a stop string or an abort meanwhile
    const RequestId id = owner->second;
    try {
      take_event(requests.at(id), std::move(event), now);
    } catch (...) {
      end_surely(id, control::FinishReason::kError, current_error());
    }
  }
  // No output is sent here, so a request leaves this list only through end_surely(), which removes it.
  for (size_t i = 0; i < touched.size();) {
    ActiveRequest* const request = touched[i];
    if (request->beams != nullptr && !request->ended()) {
      try {
        advance_beams(*request, now);
      } catch (...) {
        end_surely(request->id, control::FinishReason::kError, current_error());
      }
    }
    if (i < touched.size() && touched[i] == request) ++i;
  }
  publish_stats();
}

void Engine::Impl::deliver(control::PromptEvent event) noexcept {
  const auto owner = request_of.find(event.id);
  if (owner == request_of.end()) return;  // ended by an abort meanwhile
  const RequestId id = owner->second;
  try {
    ActiveRequest& request = requests.at(id);
    touch(request);
    PromptYield& news = request.news.prompt;
    std::ranges::move(event.yield.rows, std::back_inserter(news.rows));
    if (!event.yield.pooled.empty()) news.pooled = std::move(event.yield.pooled);
  } catch (...) {
    end_surely(id, control::FinishReason::kError, current_error());
  }
}

/// The tokenizer may throw (a file's patterns have limits).
void Engine::Impl::take_event(ActiveRequest& request, control::SeqEvent event, Nanos now) {
  request.executor_failed = request.executor_failed || (!event.error.empty() && !event.refused);
  if (request.beams != nullptr) return take_beam(request, std::move(event), now);
  Choice& choice = request.choices[event.id - request.choices.front().seq()];
  if (choice.ended()) return;
  touch(request);
  ChoiceOutput& out = request.news_of(choice.index());
  if (event.token) {
    take_token(request, choice, event, now);
    masks.accept(event.id, event.token->token);
  }
  if (!event.token && event.finish && choice.index() == 0 && choice.num_tokens() == 0) {
    request.cached_tokens = event.cached_tokens;  // it wanted no token
  }
  if (choice.take(event, out)) scheduler.abort(event.id, true);
  if (!event.error.empty()) {
    request.news.error = error_of(std::move(event));
  }
  if (!choice.ended()) return;
  forget(event.id);
  count_end(request, choice.index(), *out.finish, choice.num_tokens(), now);
  if (event.error.empty()) note_end(request, now);
}

void Engine::Impl::take_beam(ActiveRequest& request, control::SeqEvent event, Nanos now) {
  touch(request);
  if (!event.error.empty()) {
    return end_request(request, control::FinishReason::kError, error_of(std::move(event)));
  }
  if (!event.token) return;
  ++counted.generation_tokens;
  if (metrics != nullptr) metrics->generated_tokens(1);
  SequenceTimes& times = request.times.front();
  times.last_token = now;
  if (times.first_token < 0) {
    times.first_token = now;
    request.cached_tokens = event.cached_tokens;
    note_first_token(request, now);
  }
  request.beams->take(event.id, std::move(*event.token));
}

void Engine::Impl::advance_beams(ActiveRequest& request, Nanos now) {
  const BeamRun::Changes changes = request.beams->advance(next_seq);
  for (const control::SeqSpec& spec : changes.added) {
    if (!add(request, spec)) return;
  }
  for (const SeqId id : changes.ended) {
    scheduler.abort(id);
    forget(id);
  }
  if (!request.beams->done()) return;
  request.news.choices = request.beams->answers(tokenizer);
  request.beams_over = true;
  for (const ChoiceOutput& answer : request.news.choices) {
    count_end(request, 0, *answer.finish, static_cast<uint32_t>(answer.tokens.size()), now);
  }
}

void Engine::Impl::take_token(ActiveRequest& request, const Choice& choice, const control::SeqEvent& event,
                              Nanos now) {
  ++counted.generation_tokens;
  if (metrics != nullptr) metrics->generated_tokens(1);
  SequenceTimes& times = request.times[choice.index()];
  const Nanos before = std::exchange(times.last_token, now);
  if (times.first_token < 0) times.first_token = now;
  if (choice.index() != 0) return;
  if (choice.num_tokens() == 0) {
    request.cached_tokens = event.cached_tokens;
    note_first_token(request, now);
  } else if (metrics != nullptr) {
    metrics->inter_token_latency(now - before);
  }
}

void Engine::Impl::count_end(const ActiveRequest& request, uint32_t choice, control::FinishReason reason,
                             uint32_t tokens, Nanos now) {
  ++counted.requests_finished[static_cast<size_t>(reason)];
  if (shadow != nullptr) shadow->answer_ended(tokens, reason);
  if (metrics == nullptr) return;
  metrics->choice_ended({.reason = reason,
                         .prompt_tokens = request.prompt_tokens,
                         .generated_tokens = tokens,
                         .arrived = request.arrived,
                         .times = request.times[choice],
                         .ended = now});
}

void Engine::Impl::end_request(ActiveRequest& request, control::FinishReason reason,
                               const std::optional<RequestError>& error) {
  touch(request);
  if (request.beams != nullptr && !std::exchange(request.beams_over, true)) {
    abort_sequences(request.id);
    count_end(request, 0, reason, 0, clock.now());
  }
  for (Choice& choice : request.choices) {
    scheduler.abort(choice.seq());
    forget(choice.seq());
    if (choice.ended()) continue;
    choice.end(reason, request.news_of(choice.index()));
    count_end(request, choice.index(), reason, choice.num_tokens(), clock.now());
  }
  if (error) request.news.error = error;
}

/// All sequences that are known to belong to it, beams too. Allocates nothing itself.
void Engine::Impl::abort_sequences(RequestId id) {
  for (auto next = request_of.begin(); next != request_of.end();) {
    const auto [seq, owner] = *next++;  // forget() removes the entry
    if (owner != id) continue;
    scheduler.abort(seq);
    forget(seq);
  }
}

/// Like end_request, for an id that may be unknown; the request ends whatever is thrown.
void Engine::Impl::end_surely(RequestId id, control::FinishReason reason,
                              const std::optional<RequestError>& error) noexcept {
  const auto found = requests.find(id);
  if (found == requests.end()) return;
  try {
    end_request(found->second, reason, error);
  } catch (...) {
    drop(id);
  }
}

/// Ends a request with the minimum that its sink needs. REQUIRES: an exception is being handled.
void Engine::Impl::drop(RequestId id) noexcept {
  const auto found = requests.find(id);
  ActiveRequest& request = found->second;
  abort_sequences(id);
  const OutputSink sink = std::move(request.sink);
  std::erase(touched, &request);
  requests.erase(found);
  tell_of_loss(sink, id);
  request_is_over(id);
}

void Engine::Impl::end_all(control::FinishReason reason, const RequestError& error) noexcept {
  try {
    std::vector<RequestId> ids;
    ids.reserve(requests.size());
    for (const auto& [id, request] : requests) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    for (const RequestId id : ids) end_surely(id, reason, error);
  } catch (const std::bad_alloc&) {
    // In any order, since there may be no memory for a sorted list. end_surely() may remove the request.
    for (auto next = requests.begin(); next != requests.end();) end_surely((next++)->first, reason, error);
  }
  publish_stats();
}

void Engine::Impl::send_news() noexcept {
  // A sink that throws ends its request, which is new output again.
  while (!touched.empty()) {
    sending.swap(touched);
    for (ActiveRequest* request : sending) {
      request->touched = false;
      if (!request->silent() || request->tells_outlook) send(*request);
    }
    sending.clear();
  }
}

/// After its last output the request is removed.
void Engine::Impl::send(ActiveRequest& request) noexcept {
  const RequestId id = request.id;
  const bool ended = request.ended();
  OutputSink last_sink;
  try {
    const uint32_t completion_tokens = request.completion_tokens();
    if (ended) {
      if (metrics != nullptr) metrics->request_ended(request.most_tokens());
      request.keep_best();
    }
    RequestOutput news = std::exchange(request.news, {});
    news.id = id;
    news.done = ended;
    news.prompt_tokens = request.prompt_tokens;
    news.cached_tokens = request.cached_tokens;
    news.completion_tokens = completion_tokens;
    if (request.wants_outlook) news.foretold = request.foretold;
    request.tells_outlook = false;
    if (!ended) {
      std::swap(request.news.error, news.error);  // comes with the last output
      return request.sink(std::move(news));
    }
    note_outcome(request, news);
    last_sink = std::move(request.sink);
    requests.erase(id);
    last_sink(std::move(news));
  } catch (...) {
    log_error("a request was ended because its output could not be delivered");
    if (!ended) return end_surely(id, control::FinishReason::kError, current_error());
    if (requests.contains(id)) return drop(id);
    tell_of_loss(last_sink, id);
  }
  request_is_over(id);
}

/// A model whose every answer fails should be noticed from outside, at the latest by who has the answer. Only
/// failures of the executor count: clients control the prompts on which a tokenizer fails.
void Engine::Impl::note_outcome(const ActiveRequest& request, const RequestOutput& last) noexcept {
  const bool was_sick = failures_in_row >= kMostFailures;
  if (request.executor_failed) {
    ++failures_in_row;
  } else if (std::ranges::any_of(last.choices, [](const ChoiceOutput& choice) {
               return choice.finish == control::FinishReason::kStop ||
                      choice.finish == control::FinishReason::kLength;
             })) {
    failures_in_row = 0;
  }
  if (!was_sick && failures_in_row < kMostFailures) return;
  const std::lock_guard lock(mutex);
  try {
    sickness.clear();
    if (failures_in_row >= kMostFailures) {
      if (last.error) last_failure = last.error->message;
      sickness = fmt::format("The last {} requests have failed: {}", failures_in_row, last_failure);
    }
  } catch (...) {
    sickness = kOutOfMemory;
  }
}

void Engine::Impl::request_is_over(RequestId id) noexcept {
  const std::lock_guard lock(mutex);
  aborts.close(id);
  if (--active == 0) quiet.notify_all();
}

}  // namespace quire::engine
