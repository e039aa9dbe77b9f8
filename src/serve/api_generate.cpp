// The part of Api that uses the engine: submits a job's prompts and sends the output to the client.
#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "engine/answer_script.h"
#include "grammar/either_mask.h"
#include "grammar/marked_mask.h"
#include "grammar/thought_mask.h"
#include "serve/api.h"
#include "serve/mailbox.h"

namespace quire::serve {
namespace {

const char* prompt_field(AnswerKind kind) { return kind == AnswerKind::kChat ? "messages" : "prompt"; }

}  // namespace

/// The prompts of one HTTP request in the engine. Only some of them wait there at a time; the others are
/// submitted as these begin, so that a request with a thousand prompts is not a thousand places ahead of the
/// next client. The destructor aborts prompts that have not ended.
class Api::Running {
 public:
  Running(engine::Engine& engine, Exchange& exchange, std::shared_ptr<Mailbox> mailbox,
          std::vector<engine::GenerationRequest> requests)
      : engine_(engine),
        exchange_(exchange),
        mailbox_(std::move(mailbox)),
        requests_(std::move(requests)),
        places_(requests_.size()) {
    exchange_.on_client_gone([box = mailbox_] { box->wake(); });
  }
  ~Running() {
    exchange_.on_client_gone({});
    mailbox_->close();
    for (const Place& place : places_) {
      if (place.id) engine_.abort(*place.id);
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// Submits as many more prompts as may wait. A full queue is not an error after the first prompt is
  /// accepted: the others are submitted later.
  std::optional<RequestError> feed() {
    while (next_ < requests_.size()) {
      engine::GenerationRequest& request = requests_[next_];
      if (waiting_ > 0 && waiting_ + request.sequences() > most_waiting(request)) break;
      const uint32_t sequences = request.sequences();
      request.goes_on = next_ > 0;
      // A copy is kept while the request may have to be submitted again.
      auto id = engine_.submit(requests_.size() == 1 ? std::move(request) : request,
                               [box = mailbox_, prompt = next_](engine::RequestOutput output) {
                                 box->put(prompt, std::move(output));
                               });
      if (!id && id.error().code == RequestErrorCode::kQueueFull && next_ > 0) break;
      if (!id) return std::move(id.error());
      requests_[next_].prompt = {};
      places_[next_++] = {*id, sequences};
      waiting_ += sequences;
      ++open_;
    }
    return std::nullopt;
  }

  /// The next output; empty once the client has disconnected. A prompt that can no longer be submitted ends
  /// with the reason.
  asio::awaitable<std::vector<Mailbox::News>> next() {
    if (!unread_.empty()) co_return std::exchange(unread_, {});
    while (!exchange_.client_gone()) {
      std::vector<Mailbox::News> news;
      if (open_ == 0 && next_ < requests_.size()) {
        co_await pause();  // others have filled the queue, and no output of this request will wake it
      } else {
        news = co_await mailbox_->take();
      }
      for (const Mailbox::News& item : news) note(item);
      if (auto error = feed()) {
        engine::RequestOutput last;
        last.done = true;
        last.error = std::move(*error);
        news.push_back({next_, std::move(last)});
      }
      if (!news.empty()) co_return news;
    }
    co_return std::vector<Mailbox::News>();
  }

  /// Of news that next() returned: it will return them again.
  void put_back(std::vector<Mailbox::News> news) { unread_ = std::move(news); }

 private:
  struct Place {
    std::optional<RequestId> id;  // empty before and after
    uint32_t waiting = 0;         // its sequences, until its first output
  };

  /// Sequences that may be in the engine without having begun: enough to fill the slots that become free in a
  /// step or two. For requests without output before their end, as many as can run.
  uint32_t most_waiting(const engine::GenerationRequest& request) const {
    const uint32_t slots = engine_.config().scheduler.max_num_seqs;
    const bool silent = request.beam_search || request.best_of > request.n;
    return silent ? slots : std::max(1U, slots / 4);
  }

  void note(const Mailbox::News& item) {
    const engine::RequestOutput& output = item.output;
    if (output.choices.empty() && output.prompt.empty() && !output.done) return;  // it has not begun
    Place& place = places_[item.prompt];
    waiting_ -= std::exchange(place.waiting, 0);
    if (item.output.done && std::exchange(place.id, std::nullopt)) --open_;
  }

  asio::awaitable<void> pause() {
    asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(50));
    co_await timer.async_wait(asio::use_awaitable);
  }

  engine::Engine& engine_;
  Exchange& exchange_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<engine::GenerationRequest> requests_;
  std::vector<Place> places_;  // by prompt
  size_t next_ = 0;            // to be submitted
  size_t open_ = 0;            // submitted and not done
  uint32_t waiting_ = 0;
  std::vector<Mailbox::News> unread_;
};

asio::awaitable<void> Api::generate(Exchange& exchange, Expected<Job> job) {
  if (!job) {
    co_await respond_json(exchange, tl::unexpected(std::move(job.error())));
    co_return;
  }
  // While the answer waits to be read, its inputs are not kept.
  if (auto follows = co_await follow_grammar(exchange, *job); !follows) {
    co_await respond_json(exchange, tl::unexpected(std::move(follows.error())));
    co_return;
  }
  auto body = co_await run_job(exchange, std::move(*job));
  *job = {};
  if (body) co_await respond_json(exchange, std::move(*body));
}

/// The masks of a grammar; `get` gives those of each of its parts.
template <class Get>
Expected<engine::MakeMaskSource> Api::masks_of(const AnswerGrammar& grammar, const Get& get) const {
  Expected<engine::MakeMaskSource> content;
  if (!grammar.content.empty()) content = get(grammar.content);
  if (!content || grammar.calls.empty()) return content;
  Expected<engine::MakeMaskSource> calls = get(grammar.calls);
  if (!calls) return calls;
  if (!grammar.content.empty()) return grammar::either(std::move(*content), std::move(*calls));
  if (grammar.marks.empty()) return calls;
  return grammar::restrict_after(grammar.marks, std::move(*calls), model_.tokenizer);
}

/// Compiles the grammar of a job, if it has one, for the mask sources of its sequences. It begins after the
/// reasoning.
asio::awaitable<Expected<void>> Api::follow_grammar(Exchange& exchange, Job& job) {
  const AnswerRules* const rules = job.style.rules.get();
  const bool thinks = rules != nullptr && rules->format.reasoning != nullptr;
  if (job.grammar.empty() && !(thinks && rules->thinking_budget)) co_return Expected<void>();
  for (const engine::GenerationRequest& request : job.requests) {  // before the work of a grammar
    if (auto fine = engine_.check(request); !fine) co_return fine;
  }
  Expected<engine::MakeMaskSource> made;
  if (!job.grammar.empty()) {
    const auto allowance = grammars_.allowance_of(exchange.request().client);
    if (!allowance) co_return tl::unexpected(allowance.error());
    bool kept = true;
    made = masks_of(job.grammar, [&](const std::string& part) -> Expected<engine::MakeMaskSource> {
      engine::MakeMaskSource found = grammars_.find(part, *allowance);
      kept = kept && found;
      return found;
    });
    if (!kept) {
      const bool done = co_await grammar_worker_.run(exchange, [&] {
        made = masks_of(job.grammar,
                        [&](const std::string& part) { return grammars_.compile(part, *allowance); });
      });
      if (!done) throw boost::system::system_error(asio::error::operation_aborted);
    }
    if (!made) co_return tl::unexpected(std::move(made.error()));
  }
  if (thinks) {
    const grammar::Thought thought{.open = std::string(rules->format.reasoning->open),
                                   .close = std::string(rules->format.reasoning->close),
                                   .begun = rules->format.begins_in_reasoning,
                                   .budget = rules->thinking_budget,
                                   .ends = engine_.config().eos};
    made = grammar::think_first(thought, std::move(*made), model_.tokenizer);
  }
  for (engine::GenerationRequest& request : job.requests) {
    request.make_mask_source = *made;
    if (job.grammar.ends_answer()) request.ignore_eos = false;
  }
  co_return Expected<void>();
}

/// The answer to a job; empty if it was streamed or its client has disconnected.
asio::awaitable<std::optional<Expected<Api::Body>>> Api::run_job(Exchange& exchange, Job job) {
  std::optional<Expected<Body>> body;
  if (exchange.client_gone()) co_return body;
  const size_t num_prompts = job.requests.size();
  auto mailbox = std::make_shared<Mailbox>(co_await asio::this_coro::executor,
                                           job.stream ? config_.max_stream_backlog_bytes : 0,
                                           [&exchange] { exchange.cut(); });
  std::optional<RequestError> refused;
  for (engine::GenerationRequest& request : job.requests) {
    if (model_.answers != nullptr) model_.answers->dictate(request);
    if (auto fine = engine_.check(request); !fine && !refused) refused = std::move(fine.error());
  }
  const bool hears = engine_.promises() || (!job.requests.empty() && job.requests.front().wants_outlook);
  Running running(engine_, exchange, std::move(mailbox), std::exchange(job.requests, {}));
  if (!refused) refused = running.feed();
  if (refused) {
    // The engine does not know the fields of the API.
    if (refused->code == RequestErrorCode::kTooLong || refused->param == "prompt") {
      refused->param = prompt_field(job.style.kind);
    }
    body.emplace(tl::unexpected(std::move(*refused)));
    co_return body;
  }
  if (hears) {
    const bool goes_on = co_await hear_outlook(exchange, running);
    if (!goes_on) co_return body;
  }
  if (job.stream) {
    co_await answer_stream(exchange, job, num_prompts, running);
  } else {
    body = co_await whole_answer(exchange, job, num_prompts, running);
  }
  co_return body;
}

/// Waits until the engine has admitted the first prompt, and puts what it foretells into the answer's header.
/// False if there is no more to answer: it was refused, or its client has disconnected.
asio::awaitable<bool> Api::hear_outlook(Exchange& exchange, Running& running) {
  auto news = co_await running.next();
  if (news.empty()) co_return false;
  for (const Mailbox::News& item : news) {
    const engine::RequestOutput& output = item.output;
    if (item.prompt != 0) continue;
    if (output.error && output.done) {
      co_await exchange.respond(error_response(*output.error, output.retry_after));
      co_return false;
    }
    if (!output.foretold) break;
    const auto milliseconds = [](Nanos time) {
      return fmt::format("{:.1f}", static_cast<double>(time) * 1e-6);
    };
    exchange.add_header("x-quire-predicted-ttft-ms", milliseconds(output.foretold->first_token));
    exchange.add_header("x-quire-predicted-ms", milliseconds(output.foretold->end));
    break;
  }
  running.put_back(std::move(news));
  co_return true;
}

asio::awaitable<std::optional<Expected<Api::Body>>> Api::whole_answer(Exchange& exchange, Job& job,
                                                                      size_t num_prompts, Running& running) {
  std::optional<Expected<Body>> body;
  WholeAnswer answer(job.style, model_.tokenizer, num_prompts);
  while (!answer.done() && !answer.error()) {
    auto batch = co_await running.next();
    if (batch.empty()) co_return body;
    for (Mailbox::News& news : batch) answer.add(news.prompt, std::move(news.output));
  }
  if (answer.error()) {
    body.emplace(tl::unexpected(*answer.error()));
  } else {
    co_await wait_for_room(exchange);
    if (!exchange.client_gone()) body.emplace(count(exchange.request().client, answer.body()));
  }
  co_return body;
}

/// Tokens take less memory than the text of an answer with log probabilities, so the text is written only
/// when there is room.
asio::awaitable<void> Api::wait_for_room(Exchange& exchange) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (!exchange.client_gone() &&
         !answers_.may_begin(exchange.request().client, AnswerBudget::Job::kShort)) {
    timer.expires_after(Workers::kAgain);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> Api::answer_stream(Exchange& exchange, Job& job, size_t num_prompts, Running& running) {
  co_await exchange.start_stream("text/event-stream; charset=utf-8");
  StreamedAnswer answer(job.style, model_.tokenizer, num_prompts);
  std::string out;
  while (!answer.done()) {
    auto batch = co_await running.next();
    if (batch.empty()) co_return;
    out.clear();
    for (Mailbox::News& news : batch) answer.add(news.prompt, std::move(news.output), out);
    if (answer.done()) answer.finish(out);
    co_await exchange.write_stream(out);
  }
}

}  // namespace quire::serve
