// serve: the engine behind HTTP.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "answer/format.h"
#include "base/amounts.h"
#include "base/error.h"
#include "base/log.h"
#include "base/log_thread.h"
#include "base/machine_limits.h"
#include "chat/chat_templates.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/open_files.h"
#include "cli/process.h"
#include "cli/sim_options.h"
#include "cli/version.h"
#include "serve/auth.h"
#include "serve/key_file.h"
#include "serve/listen_address.h"
#include "serve/process_metrics.h"
#include "serve/server.h"
#include "serve/server_memory.h"
#include "serve/web_access.h"
#include "startup/local_engine.h"
#include "startup/model_files.h"

namespace quire::cli {
namespace {

struct ServeOptions {
  startup::EngineOptions engine;
  serve::ServerConfig server;
  std::string chat_template;
  std::string api_key_file;
  std::vector<std::string> api_keys;  // of the command line
  std::string admission = "all";
  double drain_seconds = 30;
  bool connections_given = false;
  bool no_page = false;
  bool verbose = false;
};

/// The model can still complete text, so it is served; chat requests get the same message.
void warn_of_templates(const chat::ChatTemplates& templates) {
  if (templates.empty()) {
    log_warning("the model has no chat template: it completes text, and chat requests are refused");
    return;
  }
  for (const std::string& fault : templates.faults()) {
    log_warning(fault + " (this chat template is broken, and chat requests that need it are refused)");
  }
  const auto usual = templates.choose({});
  if (!usual && templates.faults().empty())
    log_warning(usual.error().message + " --chat-template selects one.");
}

constexpr const char* kKeyVariable = "QUIRE_API_KEY";

/// From the file, the environment and the command line.
std::vector<serve::ApiKey> find_keys(const ServeOptions& options) {
  std::vector<serve::ApiKey> keys;
  if (!options.api_key_file.empty()) keys = serve::read_key_file(options.api_key_file);
  // An empty key is a mistake in a script: without an error the server would be open to all clients.
  if (const char* key = std::getenv(kKeyVariable)) keys.push_back(serve::make_api_key(kKeyVariable, key));
  for (size_t i = 0; i < options.api_keys.size(); ++i) {
    keys.push_back(
        serve::make_api_key(i == 0 ? "--api-key" : fmt::format("--api-key({})", i + 1), options.api_keys[i]));
  }
  if (!options.api_keys.empty()) {
    log_warning(
        fmt::format("--api-key: every user of this machine can see the key in the process list; "
                    "--api-key-file and {} prevent that",
                    kKeyVariable));
  }
  return keys;
}

/// By default as many as the process may have files open; a given number must fit.
void fit_connections(serve::ServerConfig& config, bool given) {
  const uint64_t files = raise_open_files();
  const uint64_t others = serve::Server::files_needed(0);
  if (files >= others + config.max_connections) return;
  if (given || files <= others) {
    throw Error(
        fmt::format("--max-connections {} needs {} open files, and this process may have {} (ulimit -n)",
                    config.max_connections, others + config.max_connections, files));
  }
  config.max_connections = static_cast<uint32_t>(files - others);
  log_warning(
      fmt::format("this process may have {} files open (ulimit -n): at most {} connections are accepted",
                  files, config.max_connections));
}

/// Half of the memory beside model and pool is for what clients can make the server hold; the other half is
/// for the engine's work.
void fit_to_memory(serve::ServerConfig& config, const startup::LocalEngine& engine, bool connections_given) {
  const auto available = available_memory();
  if (!available) return;
  const uint64_t held = engine.backend->untouched_bytes();
  const uint64_t spare = available->bytes - std::min(available->bytes, held);
  if (!serve::fit_memory(config, spare / 2, connections_given)) return;
  log_warning(
      fmt::format("{} of memory are left beside the model and K/V ({}): a request body may have {}, all "
                  "bodies together {}, and there may be {} connections",
                  human_bytes(spare), available->source, human_bytes(config.max_body_bytes),
                  human_bytes(config.max_body_memory), config.max_connections));
}

void refuse_same_names(const std::vector<std::string>& names) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) != name) {
      throw Error(fmt::format("--served-model-name: '{}' is given twice", *name));
    }
  }
}

/// With several keys, no key may take the whole queue.
void share_queue(startup::EngineOptions& engine, size_t num_keys) {
  const uint32_t queue = engine.max_waiting.value_or(engine.default_max_waiting);
  if (!engine.max_waiting_per_tenant && num_keys > 1) engine.max_waiting_per_tenant = (queue + 3) / 4;
  if (engine.max_waiting_per_tenant.value_or(0) > queue) {
    throw Error(fmt::format("--max-waiting-per-tenant: {} is more than the queue of {} (--max-waiting)",
                            *engine.max_waiting_per_tenant, queue));
  }
}

std::string names_of(const auto& formats) {
  std::string out;
  for (const auto& format : formats) out += fmt::format("{}{}", out.empty() ? "" : ", ", format.name);
  return out;
}

void check_parser(const char* flag, const std::string& name, const auto& formats) {
  const auto is_named = [&](const auto& format) { return format.name == name; };
  if (name == "auto" || name == "none" || std::ranges::any_of(formats, is_named)) return;
  throw Error(fmt::format("{}: there is no '{}'; it may be auto, none, {}", flag, name, names_of(formats)));
}

void check_operators(const serve::ServerConfig& config) {
  for (const std::string& name : config.operators) {
    const bool known =
        std::ranges::find(config.api_keys, name, &serve::ApiKey::name) != config.api_keys.end();
    if (!known) throw Error(fmt::format("--operators: there is no API key named '{}'", name));
  }
}

int serve(ServeOptions& options) {
  if (options.verbose) set_log_level(LogLevel::kDebug);
  const LogThread log_thread;  // first, so that it outlives the threads that log
  // A reader of standard error that exits must not end the server.
  std::signal(SIGPIPE, SIG_IGN);
  return_large_buffers();
  serve::ServerConfig& config = options.server;
  check_parser("--tool-call-parser", config.tool_call_parser, answer::tool_formats());
  check_parser("--reasoning-parser", config.reasoning_parser, answer::reasoning_formats());
  fit_connections(config, options.connections_given);
  config.api_keys = find_keys(options);
  check_operators(config);
  share_queue(options.engine, config.api_keys.size());
  refuse_same_names(config.served_names);
  if (config.served_names.empty()) config.served_names = {startup::model_name(options.engine.model.model)};
  config.version = version();
  config.page = !options.no_page;
  config.grammar_command = {"/proc/self/exe", std::string(kCompileGrammars)};
  startup::checked_model(options.engine.model.model);
  // Before the weights are loaded, so that an error is reported at once.
  static_cast<void>(serve::ApiKeys(config.api_keys));
  static_cast<void>(serve::WebAccess(config.allowed_origins, config.allowed_hosts));
  serve::check_listen_address(config.host, config.port);
  const chat::ChatTemplates chat_templates =
      startup::find_chat_templates(options.engine.model.model, options.chat_template);
  startup::LocalEngine local(options.engine, config.served_names.front());
  warn_of_templates(chat_templates);
  fit_to_memory(config, local, options.connections_given);
  const serve::ServedModel model{*local.tokenizer, chat_templates, local.defaults, local.facts.bos,
                                 local.answers.get()};
  serve::Server server(config, *local.engine, model,
                       [&local] { return local.metrics_text() + serve::process_metrics(); });
  server.catch_signals();
  server.start();
  const bool is_ipv6 = config.host.find(':') != std::string::npos;
  log_info(fmt::format("{} listens on http://{}:{}", config.served_names.front(),
                       is_ipv6 ? fmt::format("[{}]", config.host) : config.host, server.port()));
  if (!server.on_loopback() && config.api_keys.empty()) {
    log_warning(
        fmt::format("--host {}: anyone who can reach this machine may use the server; with --api-key-file it "
                    "requires a key",
                    config.host));
  }
  const bool all_done = server.run_until_signal(static_cast<Nanos>(options.drain_seconds * serve::kSecond));
  log_info(all_done ? "all requests are done; goodbye" : "ended with requests still running");
  return all_done ? 0 : 1;
}

}  // namespace

void add_serve(const Flags& app, Command& run) {
  auto options = std::make_shared<ServeOptions>();
  const Flags command = app.add_command("serve", "Serve a model over HTTP with an OpenAI-compatible API");
  const char* group = "Server";
  const auto add = [&](const char* name, auto& value, const std::string& help, const char* type) {
    return command.add_option(name, value, help).group(group).value_name(type);
  };
  add("--host", options->server.host, "Address to listen on", "HOST")
      .show_default()
      .may_be_empty();  // told with others that are none
  add("--port", options->server.port, "Port to listen on; 0: any free port", "PORT")
      .range(0, 65535)
      .show_default();
  add("--served-model-name", options->server.served_names,
      "Model names that requests may use; default: the name of its file or directory", "NAME");
  add("--chat-template", options->chat_template,
      "Template file, or the name of one of the model's templates; default: chosen for each request",
      "FILE|NAME");
  add("--tool-call-parser", options->server.tool_call_parser,
      fmt::format("How the model writes tool calls: {}; auto: as its chat template teaches; none: calls stay "
                  "in the text, and requests with tools are refused",
                  names_of(answer::tool_formats())),
      "NAME")
      .show_default();
  add("--reasoning-parser", options->server.reasoning_parser,
      fmt::format("How the model marks its reasoning: {}; auto: as its chat template shows; none: reasoning "
                  "stays in the text",
                  names_of(answer::reasoning_formats())),
      "NAME")
      .show_default();
  add("--api-key-file", options->api_key_file,
      "File of API keys, one NAME:KEY or NAME:sha256:HEX per line; every request must send one of the keys. "
      "Only the file's owner may have write access. Default: no keys",
      "FILE");
  add("--api-key", options->api_keys,
      fmt::format("API key; every user of the machine can see it, unlike one in a file or in the environment "
                  "variable {}",
                  kKeyVariable),
      "KEY");
  command
      .add_flag("--isolate-users", options->server.isolate_users,
                "Share no cached prefixes between requests with different `user`; requests with different "
                "API keys never share any")
      .group(group);
  add("--max-waiting-per-tenant", options->engine.max_waiting_per_tenant,
      "Part of --max-waiting that one API key may take (without keys: one client address); more are refused. "
      "Default: a quarter with two or more keys, otherwise all",
      "N")
      .range(0, INT32_MAX);
  command
      .add_flag(
          "--live", options->server.live,
          "Show at /debug/live and on the page what the scheduler does, to everybody who reaches the "
          "server. With API keys this is not needed: each key sees its own requests, and --operators all")
      .group(group);
  add("--operators", options->server.operators,
      "Names of API keys that see the requests of all keys in the live view", "NAME")
      .comma_separated();
  add("--allowed-origins", options->server.allowed_origins,
      "Origins of web pages that may use the server, SCHEME://HOST[:PORT] or *; default: the server's own "
      "host",
      "ORIGIN")
      .comma_separated();
  add("--allowed-hosts", options->server.allowed_hosts,
      "Names accepted in the Host header, in addition to this machine's (localhost, 127.0.0.1); *: any. "
      "Default: no others if --host is a loopback address, otherwise any",
      "NAME")
      .comma_separated();
  add("--shadow", options->engine.shadow.cost_file,
      "Predict each step's time and each request's first token and end by this cost model of quire "
      "calibrate; /metrics compares, and a warning says when it is off",
      "FILE");
  add("--admission", options->admission,
      "all: whatever the queue has room for; slo: refuse (429) a request whose ttft_deadline_ms would not be "
      "kept, by the prediction of --shadow, or which would break the promise to another",
      "POLICY")
      .one_of({"all", "slo"})
      .show_default();
  const char* connections_help =
      "Most simultaneous connections; the limit of open files may lower it. When all are in use, a "
      "connection without a request, between two requests or with a slow request is closed for a new one; "
      "otherwise the new one gets status 503 or waits. /health and /metrics are answered beyond the limit";
  const char* share_help =
      "Most simultaneous connections from one address. 0: no fixed number, but when three quarters of all "
      "are in use, no address except this machine's own gets more than a quarter (behind a proxy on another "
      "machine, use the value of --max-connections)";
  command
      .add_flag("--no-page", options->no_page,
                "Do not serve the page at /, on which people can talk to the model in a browser")
      .group(group);
  const Flag connections = add("--max-connections", options->server.max_connections, connections_help, "N")
                               .range(1, 1'000'000)
                               .show_default();
  add("--max-connections-per-client", options->server.max_connections_per_client, share_help, "N")
      .show_default();
  add("--drain-timeout", options->drain_seconds, "Seconds that running requests get to finish after SIGTERM",
      "S")
      .show_default()
      .number_range(0.0, 86400.0);
  command.add_flag("-v,--verbose", options->verbose, "Log every request").group(group);
  add_engine_options(command, options->engine);
  add_log_limit_option(command, options->engine.decision_log_max).group(kMemoryGroup);
  add_device_options(command, options->engine);
  command
      .add_option(
          "--sim-answers", options->engine.sim_answers,
          "The simulated device says these answers, in the order in which requests arrive, and then from "
          "the first again: a JSON string on each line. Default: arbitrary words")
      .group(kSimGroup)
      .value_name("FILE");
  command.callback([options, command, connections, &run] {
    options->connections_given = connections.is_given();
    refuse_idle_engine_flags(command, options->engine, {});
    options->engine.shadow.promises = options->admission == "slo";
    if (options->engine.shadow.promises && options->engine.shadow.cost_file.empty()) {
      throw Error("--admission slo: needs a cost model to predict by (--shadow)");
    }
    if (!options->engine.device->is_simulated)
      refuse_if_given(command, "--sim-answers", "without --device sim");
    if (!options->engine.enable_prefix_caching) {
      refuse_if_given(command, "--isolate-users", "with --no-enable-prefix-caching: nothing is shared");
    }
    run = [options] { return serve(*options); };
  });
}

}  // namespace quire::cli
