#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"
#include "engine/engine.h"
#include "serve/auth.h"
#include "tokenize/tokenizer.h"

namespace quire::chat {
class ChatTemplates;
}

namespace quire::serve {

inline constexpr Nanos kSecond = 1'000'000'000;

struct ServerConfig {
  static constexpr uint64_t kBodyBytes = 16 << 20;
  static constexpr uint64_t kBodyMemoryFactor = 16;
  static constexpr uint64_t kAnswerMemoryFactor = 16;
  static constexpr uint64_t kJsonFactor = 12;

  std::string host = "127.0.0.1";  // an address or a name
  uint16_t port = 8000;            // 0: any that is free
  /// The names under which the model answers, at least one; the first is the one in answers to requests that
  /// leave `model` out.
  std::vector<std::string> served_names;
  /// Empty: everybody may. Else /v1/*, /tokenize and /detokenize want one of them as a bearer token; each key
  /// is a tenant of its own, which shares no cached block with others.
  std::vector<ApiKey> api_keys;
  /// Requests of one key (of all, without keys) share no cached block either if their `user` differs.
  bool isolate_users = false;
  // Which web pages may use it; see WebAccess. Anything else gets a 403.
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;
  std::string version = "0";

  uint32_t http_threads = 1;  // read, write and frame
  /// Parse, render and tokenize, so that prompts hold up no stream; bodies over 128 KiB have one more.
  uint32_t worker_threads = 2;
  /// Some more are taken, for a short time each: they may ask for /health, /ping and /metrics, and are told
  /// 503 otherwise. Beyond those, connections wait in the system's queue.
  uint32_t max_connections = 2048;
  /// Of one address. 0: as many as there are, until three quarters of all places are taken; then an address
  /// other than the machine's own gets no more than a quarter of them. The machine's own have no share:
  /// behind them stands a proxy with all its clients, and a connection that makes little use of its place
  /// makes way whatever its address.
  uint32_t max_connections_per_client = 0;
  uint32_t max_header_bytes = 16 << 10;
  uint64_t max_body_bytes = kBodyBytes;
  /// Of all requests together, from their first byte until they are parsed; see BodyBudget. At least twice
  /// max_body_bytes.
  uint64_t max_body_memory = kBodyMemoryFactor * kBodyBytes;
  /// Of all whole answers together that wait to be read; see AnswerBudget. An answer of /tokenize is about
  /// six times as long as its text at most, so that one of a client leaves room for those of others.
  uint64_t max_answer_memory = kAnswerMemoryFactor * kBodyBytes;
  /// Of one body as a JSON value, and of parsing it. Token ids of four digits need about 10 times their text.
  uint64_t max_json_bytes = kJsonFactor * kBodyBytes;
  /// News that waits for a client that reads too slowly; beyond, the client is cut off and its request
  /// aborted.
  uint64_t max_stream_backlog_bytes = 1 << 20;
  /// The kernel's send buffer of each connection; 0: as the system has it.
  uint32_t send_buffer_bytes = 0;

  Nanos first_byte_timeout = 30 * kSecond;  // of a new connection; others end it before that for its place
  Nanos idle_timeout = 75 * kSecond;        // between requests of a connection
  Nanos header_timeout = 15 * kSecond;      // from the first byte of a request to the end of its head
  Nanos body_timeout = 120 * kSecond;       // from there to the end of the body
  Nanos write_timeout = 60 * kSecond;       // for what one write hands over
};

/// The model as the API shows it. What it refers to must outlive the server.
struct ServedModel {
  const tokenize::Tokenizer& tokenizer;
  /// If there is none for a chat request, or a broken one, the request gets a 400 that says so.
  const chat::ChatTemplates& chat_templates;
  SamplingDefaults defaults;
  /// What an empty prompt starts from.
  std::optional<TokenId> bos;
};

/// The text of /metrics, in Prometheus' exposition format. Called from several threads.
using MetricsText = std::function<std::string()>;

/// The HTTP server of OpenAI's API over one engine: /v1/models, /v1/completions, /v1/chat/completions,
/// /tokenize, /detokenize, /health, /ping, /version, /metrics. Owns its threads.
class Server {
 public:
  /// `engine` and what `model` refers to must outlive the server. Throws Error if the configuration makes no
  /// sense.
  Server(ServerConfig config, engine::Engine& engine, const ServedModel& model, MetricsText metrics);
  /// stop(0).
  ~Server();

  /// Files that a process with a server of so many connections may have open at once.
  static uint64_t files_needed(uint64_t max_connections);

  /// Binds, listens, serves from now on. Throws Error ("cannot listen on HOST:PORT: WHY").
  void start();
  // Where it listens, after start().
  uint16_t port() const;
  /// No other machine can reach it.
  bool on_loopback() const;

  /// Accepts nothing more, lets running requests finish for `timeout`, aborts the rest, closes everything.
  /// True if nothing was aborted. Drains the engine: it takes no more requests afterwards. Once.
  bool stop(Nanos timeout);
  /// Cuts a stop() short that waits in another thread: what still runs ends with an error (a stream with an
  /// event that says so), and those who do not read it within 2 s are cut off.
  void abort_all();

  /// Signals that come from now on wait for run_until_signal(), which catches them itself otherwise.
  void catch_signals();
  /// Waits for SIGINT or SIGTERM, then stop(timeout); a second one cuts it short. SIGHUP is as the first of
  /// them where the process has a terminal that can hang up, and is ignored elsewhere. True as stop() says.
  /// Signal handling is the process's: call it from one place, and start no other handler of the three.
  bool run_until_signal(Nanos timeout);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::serve
