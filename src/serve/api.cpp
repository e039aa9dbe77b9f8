#include "serve/api.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <iterator>
#include <type_traits>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include "base/json_memory.h"
#include "page/files.h"
#include "serve/file_answer.h"
#include "serve/json_text.h"

namespace quire::serve {
namespace {

constexpr size_t kLongBodyBytes = 128 << 10;
constexpr size_t kMostSlack = 16 << 10;

HttpResponse plain_error(unsigned status, std::string_view message, std::string_view code) {
  return {.status = status, .body = error_body(message, "invalid_request_error", "", code)};
}

/// A client's text, shortened for a message.
std::string_view shortened(std::string_view text) { return text.substr(0, 200); }

/// Only a body declared as JSON is read: a page can make a browser send other types without a preflight.
std::optional<HttpResponse> refuse_body(const HttpRequest& request) {
  constexpr std::string_view kJson = "application/json";
  constexpr const char* kCode = "unsupported_media_type";
  std::string_view type = request.content_type;
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  if (!boost::beast::iequals(type, kJson)) {
    const std::string sent = request.content_type.empty()
                                 ? "no Content-Type"
                                 : fmt::format("Content-Type: {}", shortened(request.content_type));
    return plain_error(
        415, fmt::format("the body must be JSON: send Content-Type: {} (this request has {})", kJson, sent),
        kCode);
  }
  const std::string& encoding = request.content_encoding;
  if (encoding.empty() || boost::beast::iequals(encoding, "identity")) return std::nullopt;
  return plain_error(
      415, fmt::format("Content-Encoding: {} is not supported: send the body as it is", shortened(encoding)),
      kCode);
}

HttpResponse preflight_answer(const HttpRequest& request) {
  HttpResponse response{.status = 204};
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  response.headers.emplace_back("Access-Control-Allow-Headers", request.requested_headers.empty()
                                                                    ? "Authorization, Content-Type"
                                                                    : request.requested_headers);
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

}  // namespace

Api::Api(const ServerConfig& config, engine::Engine& engine, const ServedModel& model,
         const MetricsText& metrics)
    : config_(config),
      engine_(engine),
      model_(model),
      metrics_text_(metrics),
      keys_(config.api_keys),
      web_(config.allowed_origins, config.allowed_hosts),
      schema_{.vocab_size = engine.config().vocab_size, .defaults = model.defaults},
      started_(std::time(nullptr)),
      answers_(config.max_answer_memory),
      workers_(std::max(1U, config.worker_threads),
               [this](uint64_t client) { return answers_.may_begin(client, AnswerBudget::Job::kShort); }),
      long_worker_(1,
                   [this](uint64_t client) { return answers_.may_begin(client, AnswerBudget::Job::kLong); }),
      live_(engine, clock_),
      grammars_(model.tokenizer, engine.config().vocab_size, engine.config().eos, config.grammar_command),
      grammar_worker_(1) {}

void Api::join() {
  workers_.join();
  long_worker_.join();
  interrupt();
  grammar_worker_.join();
}

// ---- Routing ----

std::span<const Api::Route> Api::routes() {
  static constexpr Route kRoutes[] = {
      {"/", "GET", false, &Api::show_file},
      {"/page/", "GET", false, &Api::show_file},
      {"/favicon.ico", "GET", false, &Api::show_file},
      {"/health", "GET", false, &Api::health},
      {"/ping", "GET", false, &Api::health},
      {"/version", "GET", false, &Api::version},
      {"/metrics", "GET", false, &Api::metrics},
      {"/debug/live", "GET", true, &Api::show_live},
      {"/v1/models", "GET", true, &Api::list_models},
      {"/v1/models/", "GET", true, &Api::show_model},
      {"/v1/completions", "POST", true, &Api::complete},
      {"/v1/chat/completions", "POST", true, &Api::chat},
      {"/tokenize", "POST", true, &Api::tokenize},
      {"/detokenize", "POST", true, &Api::detokenize},
      {"/tokenizer_info", "GET", true, &Api::describe_tokenizer},
  };
  return kRoutes;
}

const Api::Route* Api::find_route(std::string_view path) {
  for (const Route& route : routes()) {
    if (path == route.path) return &route;
    if (route.path.size() > 1 && route.path.ends_with('/') && path.starts_with(route.path)) return &route;
  }
  return nullptr;
}

/// Refuses requests that a browser sends for a page that may not use this server.
std::optional<HttpResponse> Api::refuse_page(HttpRequest& request) const {
  if (!web_.allows_host(request.host)) {
    return plain_error(
        403,
        fmt::format("the host '{}' is not accepted here; --allowed-hosts of quire serve adds names",
                    shortened(request.host)),
        "host_not_allowed");
  }
  if (!web_.allows_origin(request.origin, request.host)) {
    return plain_error(
        403,
        fmt::format("pages of '{}' may not use this server; --allowed-origins of quire serve adds origins",
                    shortened(request.origin)),
        "origin_not_allowed");
  }
  request.answer_headers = web_.answer_headers(request.origin);
  return std::nullopt;
}

std::optional<HttpResponse> Api::refuse_key(HttpRequest& request) const {
  const ApiKey* key = keys_.find(request.authorization);
  if (key == nullptr) {
    HttpResponse response =
        plain_error(401, "a valid API key is needed, as a bearer token", "invalid_api_key");
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  }
  request.tenant = key->tenant();
  request.key_name = key->name;
  return std::nullopt;
}

std::optional<HttpResponse> Api::settle_early(HttpRequest& request) const {
  if (auto refused = refuse_page(request)) return refused;
  while (request.path.size() > 1 && request.path.ends_with('/')) request.path.pop_back();
  const Route* route = find_route(request.path);
  // A client without a key must not learn which paths exist under /v1.
  const bool needs_key = route != nullptr ? route->needs_key : request.path.starts_with("/v1/");
  if (request.method == "OPTIONS" && route != nullptr) return preflight_answer(request);
  if (needs_key && keys_.required()) {
    if (auto refused = refuse_key(request)) return refused;
  }
  if (route == nullptr) return not_found(request.path);
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  if (method != route->method) {
    HttpResponse response = plain_error(
        405, fmt::format("{} requires method {}", request.path, route->method), "method_not_allowed");
    response.headers.emplace_back("Allow", route->method == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
    return response;
  }
  return method == "POST" ? refuse_body(request) : std::nullopt;
}

/// For a client whose base URL lacks the /v1.
HttpResponse Api::not_found(std::string_view path) {
  std::string message = fmt::format("the path {} does not exist", shortened(path));
  const std::string below = fmt::format("/v1{}", path);
  if (path.starts_with('/') && find_route(below) != nullptr)
    message += fmt::format("; {} exists", shortened(below));
  return plain_error(404, message, "not_found");
}

bool Api::is_vital(const HttpRequest& request) const {
  return request.path == "/health" || request.path == "/ping" || request.path == "/metrics";
}

asio::awaitable<void> Api::handle(Exchange& exchange) {
  // settle_early has found the path before.
  const Route* route = find_route(exchange.request().path);
  co_await (this->*route->handler)(exchange);
}

/// The result of `work`, done by a worker; the caller continues on its own executor. The body is freed
/// afterwards. Throws like Exchange's writing if the client disconnected before its turn.
template <class Work>
asio::awaitable<std::invoke_result_t<Work>> Api::on_worker(Exchange& exchange, Work work) {
  std::optional<std::invoke_result_t<Work>> result;
  Workers& workers = exchange.request().body.size() > kLongBodyBytes ? long_worker_ : workers_;
  std::function<void()> task = [this, &result, &work] {
    try {
      result.emplace(work());
    } catch (const JsonTooLarge&) {
      throw HttpRefusal(413, fmt::format("the body takes more than {} bytes of memory as a JSON value: send "
                                         "it in parts, or fewer values in one request",
                                         config_.max_json_bytes));
    }
  };
  const bool done = co_await workers.run(exchange, std::move(task));
  if (!done) throw boost::system::system_error(asio::error::operation_aborted);
  exchange.drop_body();
  co_return std::move(*result);
}

/// Counts a body that is there from now on.
Expected<Api::Body> Api::count(uint64_t client, Expected<std::string> text) {
  if (!text) return tl::unexpected(std::move(text.error()));
  // A string that was appended to may have twice the needed capacity.
  if (text->capacity() - text->size() > std::max(kMostSlack, text->size() / 8)) text->shrink_to_fit();
  Body body(std::move(*text));
  body.claim = AnswerBudget::Claim(answers_, client, body.text.capacity());
  return body;
}

/// `retry_after`: seconds after which a queue has room; 0: as the engine estimates.
HttpResponse Api::error_response(const RequestError& error, uint32_t retry_after) const {
  ErrorAnswer answer = error_answer(error);
  HttpResponse response{.status = answer.status, .body = std::move(answer.body)};
  const bool full = error.code == RequestErrorCode::kQueueFull;
  if (full && retry_after == 0) retry_after = engine_.retry_after();
  // A server that shuts down is available again as soon as it is restarted.
  if (error.code == RequestErrorCode::kShuttingDown) retry_after = 1;
  if (retry_after > 0) response.headers.emplace_back("Retry-After", fmt::format("{}", retry_after));
  return response;
}

asio::awaitable<void> Api::respond_json(Exchange& exchange, Expected<Body> body) {
  HttpResponse response;
  if (body) {
    response.body = std::move(body->text);
    response.claim = std::move(body->claim);
  } else {
    response = error_response(body.error(), 0);
  }
  co_await exchange.respond(std::move(response));
}

// ---- The page ----

asio::awaitable<void> Api::show_file(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const std::string_view path = request.path;
  if (!config_.page) {
    co_await exchange.respond(
        plain_error(404, "this server was started without its page (--no-page)", "no_page"));
  } else if (page::files().empty()) {
    co_await exchange.respond(
        plain_error(404, "this server was built without its page (QUIRE_PAGE=OFF)", "no_page"));
  } else if (const page::File* file = page::find_file(path)) {
    co_await exchange.respond(file_answer(*file, request));
  } else {
    co_await exchange.respond(not_found(path));
  }
}

// ---- Small answers ----

/// A supervisor should restart the process if its engine no longer answers.
asio::awaitable<void> Api::health(Exchange& exchange) {
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  if (const std::string failure = engine_.health_fault(); !failure.empty()) {
    response.status = 503;
    response.content_type = HttpResponse().content_type;
    response.body = error_body(failure, "server_error", "", "engine_failed");
  }
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> Api::version(Exchange& exchange) {
  std::string body = "{\"version\":";
  append_json_string(body, config_.version);
  body += '}';
  co_await respond_json(exchange, std::move(body));
}

asio::awaitable<void> Api::metrics(Exchange& exchange) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  if (metrics_text_) response.body = metrics_text_();
  co_await exchange.respond(std::move(response));
}

std::string Api::model_entry(std::string_view name) const {
  std::string out = "{\"id\":";
  append_json_string(out, name);
  fmt::format_to(std::back_inserter(out),
                 ",\"object\":\"model\",\"created\":{},\"owned_by\":\"quire\",\"root\":", started_);
  append_json_string(out, config_.served_names.front());
  fmt::format_to(std::back_inserter(out), ",\"parent\":null,\"max_model_len\":{}}}",
                 engine_.config().scheduler.max_model_len);
  return out;
}

asio::awaitable<void> Api::list_models(Exchange& exchange) {
  std::string body = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < config_.served_names.size(); ++i) {
    if (i > 0) body += ',';
    body += model_entry(config_.served_names[i]);
  }
  body += "]}";
  co_await respond_json(exchange, std::move(body));
}

asio::awaitable<void> Api::show_model(Exchange& exchange) {
  const std::string name = exchange.request().path.substr(std::string_view("/v1/models/").size());
  Expected<std::string> body;
  if (auto known = check_model(name); known && !name.empty()) {
    body = model_entry(name);
  } else {
    body = refuse(RequestErrorCode::kNotFound, fmt::format("the model '{}' does not exist", name), "model");
  }
  co_await respond_json(exchange, std::move(body));
}

// ---- Tokenizer ----

/// The tokens at the beginning and at the end of a text, under the names of a tokenizer_config.json; null
/// where there is none.
asio::awaitable<void> Api::describe_tokenizer(Exchange& exchange) {
  std::string body;
  const auto add = [&](std::string_view name, std::optional<TokenId> id) {
    body += name;
    if (id) {
      append_json_string(body, model_.tokenizer.token_text(*id));
    } else {
      body += "null";
    }
  };
  const std::vector<TokenId>& ends = engine_.config().eos;
  add("{\"bos_token\":", model_.bos);
  add(",\"eos_token\":", ends.empty() ? std::nullopt : std::optional(ends.front()));
  body += '}';
  co_await respond_json(exchange, std::move(body));
}

asio::awaitable<void> Api::tokenize(Exchange& exchange) {
  // Counted on the worker's thread, before that takes the next job.
  auto body = co_await on_worker(exchange, [this, &exchange] {
    return count(exchange.request().client, tokenize_body(exchange.request()));
  });
  co_await respond_json(exchange, std::move(body));
}

asio::awaitable<void> Api::detokenize(Exchange& exchange) {
  auto body = co_await on_worker(exchange, [this, &exchange] {
    return count(exchange.request().client, detokenize_body(exchange.request()));
  });
  co_await respond_json(exchange, std::move(body));
}

// ---- Generation ----

asio::awaitable<void> Api::complete(Exchange& exchange) {
  auto job =
      co_await on_worker(exchange, [this, &exchange] { return prepare_completion(exchange.request()); });
  co_await generate(exchange, std::move(job));
}

asio::awaitable<void> Api::chat(Exchange& exchange) {
  auto job = co_await on_worker(exchange, [this, &exchange] { return prepare_chat(exchange.request()); });
  co_await generate(exchange, std::move(job));
}

}  // namespace quire::serve
