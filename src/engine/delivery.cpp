#include <algorithm>
#include <utility>

#include "engine/engine_impl.h"

namespace quire {

void Engine::Impl::touch(ActiveRequest& request) {
  if (std::exchange(request.touched, true)) return;
  touched.push_back(&request);
}

void Engine::Impl::note_admitted(Nanos now) {
  for (const SeqId id : scheduler.admitted()) {
    const auto owner = request_of.find(id);
    if (owner == request_of.end()) continue;
    ActiveRequest& request = requests.at(owner->second);
    SequenceTimes& times = request.times[request.beams != nullptr ? 0 : id - request.choices.front().seq()];
    if (times.admitted < 0) times.admitted = now;
  }
}

void Engine::Impl::deliver(std::vector<SeqEvent> events, Nanos now) {
  for (SeqEvent& event : events) {
    const auto owner = request_of.find(event.id);
    if (owner == request_of.end()) continue;  // ended by a stop string or an abort meanwhile
    ActiveRequest& request = requests.at(owner->second);
    if (request.beams != nullptr) {
      take_beam(request, std::move(event), now);
      continue;
    }
    Choice& choice = request.choices[event.id - request.choices.front().seq()];
    if (choice.ended()) continue;
    touch(request);
    ChoiceOutput& out = request.news_of(choice.index());
    if (event.token) take_token(request, choice, event, now);
    if (!take_text(request, choice, event, out)) continue;
    if (!event.error.empty()) {
      request.news.error = RequestError{RequestErrorCode::kInternal, std::move(event.error), {}};
    }
    if (choice.ended()) {
      request_of.erase(event.id);
      count_end(request, choice.index(), *out.finish, choice.num_tokens(), now);
    }
  }
  const std::vector<ActiveRequest*> news = touched;
  for (ActiveRequest* request : news) {
    if (request->beams != nullptr && !request->ended()) advance_beams(*request, now);
  }
}

void Engine::Impl::take_beam(ActiveRequest& request, SeqEvent event, Nanos now) {
  touch(request);
  if (!event.error.empty()) {
    return end_request(request, FinishReason::kError,
                       RequestError{RequestErrorCode::kInternal, std::move(event.error), {}});
  }
  if (!event.token) return;
  ++counted.generation_tokens;
  if (metrics != nullptr) metrics->generated_tokens(1);
  SequenceTimes& times = request.times.front();
  times.last_token = now;
  if (times.first_token < 0) {
    times.first_token = now;
    request.cached_tokens = event.cached_tokens;
    if (metrics != nullptr) metrics->time_to_first_token(now - request.arrived);
  }
  request.beams->take(event.id, std::move(*event.token));
}

void Engine::Impl::advance_beams(ActiveRequest& request, Nanos now) {
  const BeamRun::Changes changes = request.beams->advance(next_seq);
  for (const SeqSpec& spec : changes.added) {
    if (!add(request, spec)) return;
  }
  for (const SeqId id : changes.ended) {
    scheduler.abort(id);
    request_of.erase(id);
  }
  if (!request.beams->done()) return;
  try {
    request.news.choices = request.beams->answers(tokenizer);
  } catch (const std::exception& error) {
    return end_request(request, FinishReason::kError,
                       RequestError{RequestErrorCode::kInternal, error.what(), {}});
  }
  request.beams_over = true;
  for (const ChoiceOutput& answer : request.news.choices) {
    count_end(request, 0, *answer.finish, static_cast<uint32_t>(answer.tokens.size()), now);
  }
}

/// False if the tokenizer cannot make text of it (a file's patterns have limits): then the request has ended.
bool Engine::Impl::take_text(ActiveRequest& request, Choice& choice, const SeqEvent& event,
                             ChoiceOutput& out) {
  try {
    if (choice.take(event, out)) scheduler.abort(event.id, true);
    return true;
  } catch (const std::exception& error) {
    end_request(request, FinishReason::kError, RequestError{RequestErrorCode::kInternal, error.what(), {}});
    return false;
  }
}

void Engine::Impl::take_token(ActiveRequest& request, const Choice& choice, const SeqEvent& event,
                              Nanos now) {
  ++counted.generation_tokens;
  if (metrics != nullptr) metrics->generated_tokens(1);
  SequenceTimes& times = request.times[choice.index()];
  const Nanos before = std::exchange(times.last_token, now);
  if (times.first_token < 0) times.first_token = now;
  if (choice.index() != 0) return;
  if (choice.num_tokens() == 0) {
    request.cached_tokens = event.cached_tokens;
    if (metrics != nullptr) metrics->time_to_first_token(now - request.arrived);
  } else if (metrics != nullptr) {
    metrics->inter_token_latency(now - before);
  }
}

void Engine::Impl::count_end(const ActiveRequest& request, uint32_t choice, FinishReason reason,
                             uint32_t tokens, Nanos now) {
  ++counted.requests_finished[static_cast<size_t>(reason)];
  if (metrics == nullptr) return;
  metrics->choice_ended({.reason = reason,
                         .prompt_tokens = request.prompt_tokens,
                         .generated_tokens = tokens,
                         .arrived = request.arrived,
                         .times = request.times[choice],
                         .ended = now});
}

void Engine::Impl::end_request(ActiveRequest& request, FinishReason reason,
                               const std::optional<RequestError>& error) {
  touch(request);
  if (request.beams != nullptr && !std::exchange(request.beams_over, true)) {
    for (const SeqId id : request.beams->living()) {
      scheduler.abort(id);
      request_of.erase(id);
    }
    count_end(request, 0, reason, 0, clock.now());
  }
  for (Choice& choice : request.choices) {
    scheduler.abort(choice.seq());
    request_of.erase(choice.seq());
    if (choice.ended()) continue;
    choice.end(reason, request.news_of(choice.index()));
    count_end(request, choice.index(), reason, choice.num_tokens(), clock.now());
  }
  if (error) request.news.error = error;
}

void Engine::Impl::end_all(FinishReason reason, const RequestError& error) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const RequestId id : ids) end_request(requests.at(id), reason, error);
  publish_stats();
}

void Engine::Impl::send_news() {
  size_t done = 0;
  for (ActiveRequest* request : touched) {
    request->touched = false;
    if (request->silent()) continue;
    const uint32_t completion_tokens = request->completion_tokens();
    if (request->ended()) {
      if (metrics != nullptr) metrics->request_ended(request->most_tokens());
      request->keep_best();
    }
    RequestOutput news = std::exchange(request->news, {});
    news.id = request->id;
    news.done = request->ended();
    news.prompt_tokens = request->prompt_tokens;
    news.cached_tokens = request->cached_tokens;
    news.completion_tokens = completion_tokens;
    if (!news.done) {
      request->sink(std::move(news));
      continue;
    }
    ++done;
    const OutputSink sink = std::move(request->sink);
    requests.erase(request->id);
    sink(std::move(news));
  }
  touched.clear();
  if (done == 0) return;
  const std::lock_guard lock(mutex);
  active -= done;
  if (active == 0) quiet.notify_all();
}

}  // namespace quire
