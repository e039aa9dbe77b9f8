// The part of Api that drives the engine: submits a job's prompts and carries the news to the client.
#include <memory>
#include <utility>

#include <boost/asio/this_coro.hpp>

#include "serve/api.h"
#include "serve/mailbox.h"

namespace quire {
namespace {

const char* prompt_field(AnswerKind kind) { return kind == AnswerKind::kChat ? "messages" : "prompt"; }

}  // namespace

/// The prompts of one HTTP request in the engine. What has not ended when this goes is aborted.
class Api::Running {
 public:
  Running(Engine& engine, Exchange& exchange, std::shared_ptr<Mailbox> mailbox, size_t num_prompts)
      : engine_(engine), exchange_(exchange), mailbox_(std::move(mailbox)), ids_(num_prompts) {
    exchange_.on_client_gone([box = mailbox_] { box->wake(); });
  }
  ~Running() {
    exchange_.on_client_gone({});
    mailbox_->close();
    for (const auto& id : ids_) {
      if (id) engine_.abort(*id);
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Expected<void> submit(size_t prompt, GenerationRequest request) {
    auto id = engine_.submit(std::move(request), [box = mailbox_, prompt](RequestOutput output) {
      box->put(prompt, std::move(output));
    });
    if (!id) return tl::unexpected(std::move(id.error()));
    ids_[prompt] = *id;
    return {};
  }

  /// The next news; none once the client is gone.
  asio::awaitable<std::vector<Mailbox::News>> next() {
    while (!exchange_.client_gone()) {
      auto news = co_await mailbox_->take();
      for (const Mailbox::News& item : news) {
        if (item.output.done) ids_[item.prompt].reset();
      }
      if (!news.empty()) co_return news;
    }
    co_return std::vector<Mailbox::News>();
  }

 private:
  Engine& engine_;
  Exchange& exchange_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<std::optional<RequestId>> ids_;  // by prompt; empty once done
};

asio::awaitable<void> Api::generate(Exchange& exchange, Expected<Job> job) {
  if (!job) {
    co_await respond_json(exchange, tl::unexpected(std::move(job.error())));
    co_return;
  }
  if (exchange.client_gone()) co_return;
  const size_t num_prompts = job->requests.size();
  auto mailbox = std::make_shared<Mailbox>(co_await asio::this_coro::executor,
                                           job->stream ? config_.max_stream_backlog_bytes : 0,
                                           [&exchange] { exchange.cut(); });
  Running running(engine_, exchange, std::move(mailbox), num_prompts);
  Expected<void> taken;
  for (size_t i = 0; i < num_prompts && taken; ++i) taken = running.submit(i, std::move(job->requests[i]));
  if (!taken) {
    // The engine knows of no fields.
    const RequestErrorCode code = taken.error().code;
    if (code == RequestErrorCode::kTooLong || taken.error().param == "prompt") {
      taken.error().param = prompt_field(job->style.kind);
    }
    co_await respond_json(exchange, tl::unexpected(std::move(taken.error())));
  } else if (job->stream) {
    co_await answer_stream(exchange, *job, running);
  } else {
    co_await answer_whole(exchange, *job, running);
  }
}

asio::awaitable<void> Api::answer_whole(Exchange& exchange, Job& job, Running& running) {
  WholeAnswer answer(job.style, model_.tokenizer, job.requests.size());
  while (!answer.done() && !answer.error()) {
    auto batch = co_await running.next();
    if (batch.empty()) co_return;
    for (Mailbox::News& news : batch) answer.add(news.prompt, std::move(news.output));
  }
  Expected<std::string> body;
  if (answer.error()) {
    body = tl::unexpected(*answer.error());
  } else {
    body = answer.body();
  }
  co_await respond_json(exchange, std::move(body));
}

asio::awaitable<void> Api::answer_stream(Exchange& exchange, Job& job, Running& running) {
  co_await exchange.start_stream("text/event-stream; charset=utf-8");
  StreamedAnswer answer(job.style, model_.tokenizer, job.requests.size());
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

}  // namespace quire
