#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat/chat_template.h"
#include "engine/live_feed.h"
#include "serve/answer_budget.h"
#include "serve/auth.h"
#include "serve/grammars.h"
#include "serve/http.h"
#include "serve/openai_response.h"
#include "serve/openai_schema.h"
#include "serve/server.h"
#include "serve/tool_grammar.h"
#include "serve/web_access.h"
#include "serve/workers.h"

namespace quire::serve {

/// The paths of the API and their answers. Thread-safe.
class Api final : public RequestHandler {
 public:
  /// The references must outlive it.
  Api(const ServerConfig& config, engine::Engine& engine, const ServedModel& model,
      const MetricsText& metrics);

  /// `on_loopback`: no other machine can reach the server. To be called before the first request.
  void bind(bool on_loopback) { web_.bind(on_loopback); }

  std::optional<HttpResponse> settle_early(HttpRequest& request) const override;
  bool is_vital(const HttpRequest& request) const override;
  asio::awaitable<void> handle(Exchange& exchange) override;

  /// Ends the waiting of requests for what takes long and would come too late: the engine takes no more.
  void interrupt() {
    grammars_.interrupt();
    live_.close();
  }

  /// Waits for the jobs that the workers have started. No request may be handled afterwards.
  void join();

 private:
  using Handler = asio::awaitable<void> (Api::*)(Exchange&);
  struct Route {
    std::string_view path;    // if it ends with '/': with all paths below it
    std::string_view method;  // GET includes HEAD
    bool needs_key;
    Handler handler;
  };
  static std::span<const Route> routes();
  static const Route* find_route(std::string_view path);
  static HttpResponse not_found(std::string_view path);
  std::optional<HttpResponse> refuse_page(HttpRequest& request) const;
  std::optional<HttpResponse> refuse_key(HttpRequest& request) const;

  /// A request ready for the engine.
  struct Job {
    AnswerStyle style;
    bool stream = false;
    std::vector<engine::GenerationRequest> requests;  // one per prompt
    AnswerGrammar grammar;                            // of every answer
  };

  asio::awaitable<void> show_file(Exchange& exchange);
  asio::awaitable<void> show_live(Exchange& exchange);
  asio::awaitable<void> health(Exchange& exchange);
  asio::awaitable<void> version(Exchange& exchange);
  asio::awaitable<void> metrics(Exchange& exchange);
  asio::awaitable<void> list_models(Exchange& exchange);
  asio::awaitable<void> show_model(Exchange& exchange);
  asio::awaitable<void> complete(Exchange& exchange);
  asio::awaitable<void> chat(Exchange& exchange);
  asio::awaitable<void> describe_tokenizer(Exchange& exchange);
  asio::awaitable<void> tokenize(Exchange& exchange);
  asio::awaitable<void> detokenize(Exchange& exchange);

  /// The body of a complete answer, and its claim until it is written.
  struct Body {
    Body() = default;
    Body(std::string the_text) : text(std::move(the_text)) {}
    std::string text;
    AnswerBudget::Claim claim;
  };
  HttpResponse error_response(const RequestError& error, uint32_t retry_after) const;
  Expected<Body> count(uint64_t client, Expected<std::string> text);

  class Running;
  asio::awaitable<void> generate(Exchange& exchange, Expected<Job> job);
  template <class Get>
  Expected<engine::MakeMaskSource> masks_of(const AnswerGrammar& grammar, const Get& get) const;
  asio::awaitable<Expected<void>> follow_grammar(Exchange& exchange, Job& job);
  asio::awaitable<std::optional<Expected<Body>>> run_job(Exchange& exchange, Job job);
  asio::awaitable<bool> hear_outlook(Exchange& exchange, Running& running);
  asio::awaitable<std::optional<Expected<Body>>> whole_answer(Exchange& exchange, Job& job,
                                                              size_t num_prompts, Running& running);
  asio::awaitable<void> wait_for_room(Exchange& exchange);
  asio::awaitable<void> answer_stream(Exchange& exchange, Job& job, size_t num_prompts, Running& running);

  // On a worker's thread.
  Expected<Job> prepare_completion(const HttpRequest& request) const;
  Expected<Job> prepare_chat(const HttpRequest& request) const;
  Expected<std::string> tokenize_body(const HttpRequest& request) const;
  Expected<std::string> detokenize_body(const HttpRequest& request) const;
  Expected<json::value> parse_body(const HttpRequest& request) const;
  Expected<void> check_model(std::string_view name) const;
  Expected<void> check_count(size_t num_prompts, const engine::GenerationRequest& request) const;
  Expected<bool> wants_prediction(const HttpRequest& request) const;
  Expected<void> check_policy(const engine::GenerationRequest& request) const;
  Expected<std::vector<TokenId>> encode(std::string_view text, bool add_special_tokens,
                                        std::string_view param) const;
  Expected<std::string> decode(const std::vector<TokenId>& ids, bool skip_special_tokens,
                               std::string_view param) const;
  Expected<void> tokenize_bad_words(GenerationOptions& options) const;
  bool truncate(const GenerationOptions& options, std::vector<TokenId>& prompt) const;
  Expected<std::shared_ptr<AnswerRules>> make_rules(ChatRequest& chat, AnswerGrammar& grammar) const;
  Expected<void> offer_tools(ChatRequest& chat, const chat::ChatTemplate& form, AnswerRules& rules,
                             AnswerGrammar& grammar) const;
  MarkTokens special_marks(const answer::AnswerFormat& format) const;
  AnswerStyle make_style(AnswerKind kind, const GenerationOptions& options) const;
  engine::GenerationRequest make_request(const HttpRequest& request, const GenerationOptions& options,
                                         std::vector<TokenId> prompt) const;

  template <class Work>
  asio::awaitable<std::invoke_result_t<Work>> on_worker(Exchange& exchange, Work work);
  asio::awaitable<void> respond_json(Exchange& exchange, Expected<Body> body);
  std::string model_entry(std::string_view name) const;

  const ServerConfig& config_;
  engine::Engine& engine_;
  const ServedModel& model_;
  const MetricsText& metrics_text_;
  const ApiKeys keys_;
  WebAccess web_;
  const SchemaContext schema_;
  const int64_t started_;  // seconds since 1970
  AnswerBudget answers_;
  Workers workers_;
  Workers long_worker_;      // for long bodies, so that short ones never wait behind them
  const SteadyClock clock_;  // as the engine's
  engine::LiveFeed live_;
  Grammars grammars_;
  Workers grammar_worker_;
};

}  // namespace quire::serve
