#include "bench/load_generator.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/error.h"

namespace quire::bench {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

/// Short words that are one token each in most tokenizers.
constexpr std::array<const char*, 64> kWords = {
    "the",  "of",   "and",   "to",    "in",    "that", "was",  "he",  "it",    "his",  "with",
    "as",   "for",  "had",   "you",   "not",   "be",   "her",  "is",  "but",   "at",   "on",
    "she",  "by",   "which", "have",  "or",    "from", "this", "him", "all",   "were", "they",
    "are",  "my",   "so",    "one",   "we",    "me",   "no",   "an",  "there", "who",  "been",
    "what", "when", "if",    "would", "their", "will", "them", "out", "up",    "more", "said",
    "into", "then", "do",    "could", "time",  "some", "like", "any", "day"};

std::string words_of(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) {
    if (!text.empty()) text += ' ';
    text += kWords[static_cast<size_t>(token) % kWords.size()];
  }
  return text;
}

/// The name that a server gives its first model.
std::string first_model(const std::string& models, const std::string& url) {
  boost::system::error_code bad;
  const json::value root = json::parse(models, bad);
  const json::value* id = bad ? nullptr : root.find_pointer("/data/0/id", bad);
  if (id == nullptr || !id->is_string()) {
    throw Error(fmt::format("{}/v1/models lists no model; name one with --model", url));
  }
  return std::string(id->get_string());
}

}  // namespace

bool has_tenants(const sim::Workload& workload) {
  return std::ranges::any_of(workload.requests,
                             [](const sim::SimRequest& request) { return request.tenant != 0; });
}

LoadGenerator::LoadGenerator(const LoadTarget& target, const sim::Workload& workload, uint32_t concurrency,
                             bool watch)
    : target_(target),
      workload_(workload),
      concurrency_(concurrency),
      watch_(watch),
      url_(ServerUrl::parse(target.url, "--url")),
      model_(target.model),
      source_(workload),
      sends_tenants_(target.api_key.empty() && has_tenants(workload)),
      keeps_connections_(std::ranges::any_of(workload.requests, [](const sim::SimRequest& request) {
        return request.follows != sim::kNoRequest;
      })) {}

LoadClient LoadGenerator::client(std::chrono::milliseconds patience) {
  return {io_, url_, target_.api_key, patience, clock_};
}

LoadClient LoadGenerator::client() {
  return client(std::chrono::milliseconds(static_cast<int64_t>(target_.timeout * 1000)));
}

void LoadGenerator::run(const std::function<void()>& ended) {
  ended_ = ended;
  std::exception_ptr failed;
  start_ = last_end_ = clock_.now();
  signals_.async_wait([this](const boost::system::error_code& cancelled, int signal) {
    if (cancelled) return;
    signal_ = signal;
    io_.stop();
  });
  asio::co_spawn(io_, drive(), [&](std::exception_ptr error) {
    failed = error;
    if (failed) io_.stop();
  });
  io_.run();
  if (failed) std::rethrow_exception(failed);
  if (signal_ != 0) last_end_ = clock_.now();
}

asio::awaitable<void> LoadGenerator::drive() {
  if (model_.empty()) {
    LoadClient asking = client();
    const std::string models = co_await asking.get("/v1/models");
    model_ = first_model(models, target_.url);
  }
  if (watch_) asio::co_spawn(io_, watch_server(), asio::detached);
  start_ = last_end_ = clock_.now();
  if (concurrency_ > 0) {
    const size_t clients = std::min<size_t>(concurrency_, workload_.requests.size());
    for (size_t i = 0; i < clients; ++i) asio::co_spawn(io_, one_after_the_other(), asio::detached);
    co_return;
  }
  co_await when_due();
}

asio::awaitable<void> LoadGenerator::when_due() {
  for (;;) {
    const std::optional<Nanos> next = source_.next();
    if (!next && open_ == 0) co_return;
    const Nanos left = next ? start_ + *next - clock_.now() : 0;
    if (next && left <= 0) {
      ++open_;
      asio::co_spawn(io_, alone(source_.take(), start_ + *next), asio::detached);
      continue;
    }
    boost::system::error_code cancelled;
    if (next) {
      due_timer_.expires_after(std::chrono::nanoseconds(left));
    } else {
      due_timer_.expires_at(std::chrono::steady_clock::time_point::max());
    }
    co_await due_timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
}

asio::awaitable<void> LoadGenerator::one_after_the_other() {
  LoadClient own = client();
  while (next_ < workload_.requests.size()) {
    const size_t index = next_++;
    co_await request(own, index, std::nullopt);
  }
}

asio::awaitable<void> LoadGenerator::alone(size_t index, Nanos due) {
  std::unique_ptr<LoadClient> own;
  if (idle_.empty()) {
    own = std::make_unique<LoadClient>(client());
  } else {
    own = std::move(idle_.back());
    idle_.pop_back();
  }
  co_await request(*own, index, due);
  if (keeps_connections_) idle_.push_back(std::move(own));
  --open_;
  source_.ended(index, samples_.back().end);  // also one that failed: the user goes on
  due_timer_.cancel();
}

std::string LoadGenerator::body_of(size_t index) const {
  json::object body{{"model", model_},
                    {"max_tokens", workload_.requests[index].output_length},
                    {"temperature", 0},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}}};
  if (!target_.stop_at_eos) {
    body["ignore_eos"] = true;
    body["return_token_ids"] = true;  // so that tokens with a part of a character are counted too
  }
  add_service(body, workload_.requests[index]);
  const std::vector<TokenId> tokens = workload_.prompt(index);
  if (target_.is_chat) {
    json::array messages;
    messages.push_back({{"role", "user"}, {"content", words_of(tokens)}});
    body["messages"] = std::move(messages);
  } else if (target_.words) {
    body["prompt"] = words_of(tokens);
  } else {
    body["prompt"] = json::array(tokens.begin(), tokens.end());
  }
  return json::serialize(body);
}

void LoadGenerator::add_service(json::object& body, const sim::SimRequest& request) const {
  if (request.priority != 0) body["priority"] = request.priority;
  if (request.names_deadline) {
    constexpr Nanos kMillisecond = 1'000'000;
    body["ttft_deadline_ms"] =
        std::clamp<Nanos>((request.ttft_deadline + kMillisecond / 2) / kMillisecond, 1, INT32_MAX);
  }
  if (sends_tenants_) body["user"] = fmt::format("tenant {}", request.tenant);
}

asio::awaitable<void> LoadGenerator::request(LoadClient& own, size_t index, std::optional<Nanos> due) {
  std::string body = body_of(index);
  const Nanos arrival = due.value_or(clock_.now());
  const char* path = target_.is_chat ? "/v1/chat/completions" : "/v1/completions";
  StreamedAnswer answer = co_await own.stream(path, std::move(body));
  last_end_ = std::max(last_end_, answer.end);
  if (answer.first < 0) {
    // Tokens without text, such as end-of-sequence tokens.
    answer.first = answer.end;
    if (answer.tokens == 0 && answer.error.empty()) answer.error = "an answer without a token";
  }
  samples_.push_back({.arrival = arrival - start_,
                      .first = answer.first - start_,
                      .end = answer.end - start_,
                      .number = index + 1,
                      .prompt_tokens = answer.prompt_tokens,
                      .tokens = answer.tokens,
                      .wanted_tokens = workload_.requests[index].output_length,
                      .cached_tokens = answer.cached_tokens,
                      .tokens_said = answer.has_usage,
                      .gaps = std::move(answer.gaps),
                      .error = std::move(answer.error)});
  if (ended_) ended_();
  if (samples_.size() < workload_.requests.size()) co_return;
  all_ended_ = true;
  signals_.cancel();
  watch_timer_.cancel();
}

asio::awaitable<void> LoadGenerator::watch_server() {
  // More often at first, for short loads.
  constexpr std::chrono::milliseconds kMost{500};
  std::chrono::milliseconds every{10};
  constexpr auto kPatience = std::chrono::seconds(5);
  LoadClient asking = client(kPatience);
  try {
    for (bool is_last = false; !is_last;) {
      is_last = all_ended_;
      const std::string metrics = co_await asking.get("/metrics");
      footprint_.take(metrics);
      timeline_.take(clock_.now() - start_, metrics);
      if (all_ended_) continue;
      boost::system::error_code cancelled;
      watch_timer_.expires_after(every);
      every = std::min(2 * every, kMost);
      co_await watch_timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    }
  } catch (const Error&) {
    // A server need not have any: its columns and plots stay empty.
  }
}

}  // namespace quire::bench
