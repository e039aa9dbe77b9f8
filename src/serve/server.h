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
namespace quire::engine {
class AnswerScript;
}

namespace quire::serve {

inline constexpr Nanos kSecond = 1'000'000'000;

struct ServerConfig {
  static constexpr uint64_t kBodyBytes = 16 << 20;
  static constexpr uint64_t kBodyMemoryFactor = 16;
  static constexpr uint64_t kAnswerMemoryFactor = 16;
  static constexpr uint64_t kJsonFactor = 12;

  std::string host = "127.0.0.1";  // an address or a name
  uint16_t port = 8000;            // 0: any free port
  /// The names of the model, at least one; the first is used in answers to requests that omit `model`.
  std::vector<std::string> served_names;
  /// Empty: no key is needed. Otherwise /v1/*, /tokenize and /detokenize require one of them as a bearer
  /// token. Each key is a tenant of its own and shares no cached block with other tenants.
  std::vector<ApiKey> api_keys;
  /// Requests with the same key (without keys: all requests) share no cached block either if their `user`
  /// differs.
  bool isolate_users = false;
  // The web pages that may use it; see WebAccess. Others get a 403.
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;
  /// Whether /debug/live may be read without keys. With keys each reader is told of its own requests,
  /// whatever this says; the operators, by the names of their keys, of all.
  bool live = false;
  std::vector<std::string> operators;
  /// Whether / shows the page for people, if quire is built with it.
  bool page = true;
  std::string version = "0";
  /// The names of answer::tool_formats() and answer::reasoning_formats() by which answers of chats are
  /// divided; "auto": as the chat template teaches; "none": tool calls and reasoning stay in the content.
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  /// The program that tries out grammars (grammar::CompilerConfig); empty: requests with a grammar are
  /// refused.
  std::vector<std::string> grammar_command;

  uint32_t http_threads = 1;  // they read, write and frame
  /// They parse, render and tokenize, so that prompts delay no stream; bodies over 128 KiB have one more
  /// thread.
  uint32_t worker_threads = 2;
  /// Some more are accepted for a short time each: they may request /health, /ping and /metrics, and get 503
  /// for anything else. Beyond those, connections wait in the system's queue.
  uint32_t max_connections = 2048;
  /// The most connections of one address. 0: no limit until three quarters of all places are taken; then an
  /// address other than the machine's own gets at most a quarter of them. The machine's own addresses have no
  /// limit, since a proxy with all its clients may connect from them. A connection that makes little use of
  /// its place loses it whatever its address.
  uint32_t max_connections_per_client = 0;
  uint32_t max_header_bytes = 16 << 10;
  uint64_t max_body_bytes = kBodyBytes;
  /// For all requests together, from their first byte until they are parsed; see BodyBudget. At least twice
  /// max_body_bytes.
  uint64_t max_body_memory = kBodyMemoryFactor * kBodyBytes;
  /// For all complete answers that wait to be read; see AnswerBudget. An answer of /tokenize is at most about
  /// six times as long as its text, so that one client's answer leaves room for others.
  uint64_t max_answer_memory = kAnswerMemoryFactor * kBodyBytes;
  /// For one body as a JSON value, including the parser. Token ids of four digits need about 10 times their
  /// text.
  uint64_t max_json_bytes = kJsonFactor * kBodyBytes;
  /// Output that may wait for a client that reads slowly; beyond this, the connection is closed and the
  /// request aborted.
  uint64_t max_stream_backlog_bytes = 1 << 20;
  /// The kernel's send buffer of each connection; 0: the system's default.
  uint32_t send_buffer_bytes = 0;

  Nanos first_byte_timeout = 30 * kSecond;  // of a new connection; it may end earlier if its place is needed
  Nanos idle_timeout = 75 * kSecond;        // between requests of a connection
  Nanos header_timeout = 15 * kSecond;      // from the first byte of a request to the end of its head
  Nanos body_timeout = 120 * kSecond;       // from there to the end of the body
  Nanos write_timeout = 60 * kSecond;       // for the data of one write
};

/// The model as the API shows it. The references must outlive the server.
struct ServedModel {
  const tokenize::Tokenizer& tokenizer;
  /// If there is none for a chat request, or it does not parse, the request gets a 400 that says so.
  const chat::ChatTemplates& chat_templates;
  SamplingDefaults defaults;
  /// The token that an empty prompt starts with.
  std::optional<TokenId> bos;
  /// What is said instead of the model's own words, or null.
  const engine::AnswerScript* answers = nullptr;
};

/// The text of /metrics, in Prometheus' exposition format. Called from several threads.
using MetricsText = std::function<std::string()>;

/// The HTTP server of OpenAI's API over one engine: /v1/models, /v1/completions, /v1/chat/completions,
/// /tokenize, /detokenize, /health, /ping, /version, /metrics; and of a page for people, at /. Owns its
/// threads.
class Server {
 public:
  /// `engine` and what `model` refers to must outlive the server. Throws Error if the configuration is
  /// invalid.
  Server(ServerConfig config, engine::Engine& engine, const ServedModel& model, MetricsText metrics);
  /// stop(0).
  ~Server();

  /// The file descriptors that a process needs for a server with `max_connections`.
  static uint64_t files_needed(uint64_t max_connections);

  /// Binds, listens and starts to serve. Throws Error ("cannot listen on HOST:PORT: WHY").
  void start();
  // The port on which it listens, after start().
  uint16_t port() const;
  /// Whether no other machine can reach it.
  bool on_loopback() const;

  /// Stops accepting, lets running requests finish for `timeout`, aborts the rest, closes everything. True if
  /// nothing was aborted. Drains the engine, which accepts no more requests afterwards. To be called once.
  bool stop(Nanos timeout);
  /// Ends the waiting of a stop() in another thread: running requests end with an error (a stream with an
  /// event that says so), and connections that do not read it within 2 s are closed.
  void abort_all();

  /// Signals from now on are kept for run_until_signal(), which otherwise starts to catch them itself.
  void catch_signals();
  /// Waits for SIGINT or SIGTERM, then calls stop(timeout); a second signal ends the waiting. SIGHUP counts
  /// like them if the process has a terminal that can hang up, and is ignored otherwise. Returns the result
  /// of stop(). Signal handling belongs to the process: call this from one place, and install no other
  /// handler for the three signals.
  bool run_until_signal(Nanos timeout);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::serve
