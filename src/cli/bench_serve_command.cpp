// bench serve: requests over HTTP to a running server, ours or another that speaks OpenAI's API.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/load_client.h"
#include "cli/load_page.h"
#include "cli/load_report.h"
#include "cli/machine.h"
#include "cli/sim_options.h"
#include "cli/terminal.h"
#include "cli/workload_options.h"
#include "record/display_text.h"

namespace quire::cli {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

struct Options {
  WorkloadOptions workload{.default_requests = 64, .default_prompt = "64", .default_output = "150"};
  std::string url = "http://127.0.0.1:8000";
  std::string model;
  std::string api_key;
  std::string endpoint = "completions";
  bool words = false;
  bool stop_at_eos = false;
  uint32_t concurrency = 0;  // 0: as they arrive
  uint32_t vocab_size = 1000;
  double timeout = 600;
  std::optional<double> slo_ttft;
  std::optional<double> slo_tpot;
  bool as_json = false;
  std::string html;
  LoadFacts given;  // the flags of the command line

  bool is_chat() const { return endpoint == "chat"; }
};

/// Short words that most tokenizers know as a token each.
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
    throw Error(fmt::format("{}/v1/models names no model; --model says which to ask for", url));
  }
  return std::string(id->get_string());
}

/// Sends the requests and keeps what came of each.
class LoadGenerator {
 public:
  LoadGenerator(const Options& options, const Workload& workload)
      : options_(options),
        workload_(workload),
        url_(ServerUrl::parse(options.url, "--url")),
        model_(options.model),
        progress_("requests", workload.requests.size()) {}

  /// Until all have ended, or a signal says that it is enough.
  void run() {
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
    progress_.hide();
    if (failed) std::rethrow_exception(failed);
    if (signal_ != 0) last_end_ = clock_.now();
  }
  const std::vector<LoadSample>& samples() const { return samples_; }
  Nanos elapsed() const { return last_end_ - start_; }
  const std::string& model() const { return model_; }
  /// The signal that ended it, or 0.
  int signal() const { return signal_; }

 private:
  LoadClient client() {
    const auto patience = std::chrono::milliseconds(static_cast<int64_t>(options_.timeout * 1000));
    return {io_, url_, options_.api_key, patience, clock_};
  }

  asio::awaitable<void> drive() {
    if (model_.empty()) {
      LoadClient asking = client();
      const std::string models = co_await asking.get("/v1/models");
      model_ = first_model(models, options_.url);
    }
    start_ = last_end_ = clock_.now();
    if (options_.concurrency > 0) {
      const size_t clients = std::min<size_t>(options_.concurrency, workload_.requests.size());
      for (size_t i = 0; i < clients; ++i) asio::co_spawn(io_, one_after_the_other(), asio::detached);
      co_return;
    }
    asio::steady_timer timer(io_);
    for (size_t i = 0; i < workload_.requests.size(); ++i) {
      timer.expires_after(std::chrono::nanoseconds(start_ + workload_.requests[i].arrival - clock_.now()));
      co_await timer.async_wait(asio::use_awaitable);
      asio::co_spawn(io_, alone(i), asio::detached);
    }
  }

  asio::awaitable<void> one_after_the_other() {
    LoadClient own = client();
    while (next_ < workload_.requests.size()) {
      const size_t index = next_++;
      co_await request(own, index, std::nullopt);
    }
  }

  asio::awaitable<void> alone(size_t index) {
    LoadClient own = client();
    co_await request(own, index, start_ + workload_.requests[index].arrival);
  }

  std::string body_of(size_t index) const {
    json::object body{{"model", model_},
                      {"max_tokens", workload_.requests[index].output_length},
                      {"temperature", 0},
                      {"stream", true},
                      {"stream_options", {{"include_usage", true}}}};
    if (!options_.stop_at_eos) {
      body["ignore_eos"] = true;
      body["return_token_ids"] = true;  // so that tokens that are half a letter show, too
    }
    const std::vector<TokenId> tokens = workload_.prompt(index);
    if (options_.is_chat()) {
      json::array messages;
      messages.push_back({{"role", "user"}, {"content", words_of(tokens)}});
      body["messages"] = std::move(messages);
    } else if (options_.words) {
      body["prompt"] = words_of(tokens);
    } else {
      body["prompt"] = json::array(tokens.begin(), tokens.end());
    }
    return json::serialize(body);
  }

  /// Without an arrival it is when it is sent.
  asio::awaitable<void> request(LoadClient& own, size_t index, std::optional<Nanos> due) {
    std::string body = body_of(index);
    const Nanos arrival = due.value_or(clock_.now());
    const char* path = options_.is_chat() ? "/v1/chat/completions" : "/v1/completions";
    StreamedAnswer answer = co_await own.stream(path, std::move(body));
    last_end_ = std::max(last_end_, answer.end);
    if (answer.first < 0) {
      // Tokens that are no text, such as those that end a text.
      answer.first = answer.end;
      if (answer.tokens == 0 && answer.error.empty()) answer.error = "an answer without a token";
    }
    samples_.push_back({.arrival = arrival - start_,
                        .first = answer.first - start_,
                        .end = answer.end - start_,
                        .prompt_tokens = answer.prompt_tokens,
                        .tokens = answer.tokens,
                        .wanted_tokens = workload_.requests[index].output_length,
                        .tokens_said = answer.has_usage,
                        .gaps = std::move(answer.gaps),
                        .error = std::move(answer.error)});
    progress_.advance();
    if (samples_.size() == workload_.requests.size()) signals_.cancel();
  }

  const Options& options_;
  const Workload& workload_;
  ServerUrl url_;
  std::string model_;
  Progress progress_;
  SteadyClock clock_;
  std::vector<LoadSample> samples_;
  size_t next_ = 0;
  Nanos start_ = 0;
  Nanos last_end_ = 0;
  int signal_ = 0;
  asio::io_context io_{1};
  asio::signal_set signals_{io_, SIGINT, SIGTERM};
};

void print_report(const LoadReport& report) {
  fmt::print("{} requests in {:.2f} s ({} failed): {:.1f} output tokens/s, {:.2f} requests/s\n",
             report.finished, report.seconds(), report.failed, report.per_second(report.output_tokens),
             report.per_second(report.finished));
  fmt::print("{} tokens in, {} out{}\n", with_commas(report.prompt_tokens), with_commas(report.output_tokens),
             report.tokens_said ? "" : " (pieces of text: the server does not say how many tokens)");
  if (report.objective.any()) {
    fmt::print("{} of {} within the objectives: {:.2f} requests/s\n", report.good, report.finished,
               report.per_second(report.good));
  }
  const std::pair<const char*, Percentiles> times[] = {{"to the first token", report.ttft},
                                                       {"per further token", report.tpot},
                                                       {"between two pieces", report.itl},
                                                       {"to the last token", report.e2e}};
  print_times(times);
}

/// What went wrong, on standard error.
void print_complaints(const LoadReport& report) {
  if (report.unfinished > 0) {
    fmt::print(stderr, "quire: interrupted; {} of {} requests had not ended\n", report.unfinished,
               report.requests);
  }
  if (report.short_answers > 0) {
    fmt::print(stderr, "quire: {} answers were shorter than asked for\n", report.short_answers);
  }
  constexpr size_t kMost = 5;
  for (size_t i = 0; i < std::min(kMost, report.errors.size()); ++i) {
    const LoadErrors& each = report.errors[i];
    fmt::print(stderr, "quire: {} of {} requests failed: {}\n", each.count, report.requests, each.example);
  }
  if (report.errors.size() > kMost) {
    fmt::print(stderr, "quire: and {} other kinds of errors\n", report.errors.size() - kMost);
  }
}

void write_page(const Options& options, const std::string& model, const LoadReport& report,
                const std::vector<LoadSample>& samples) {
  LoadFacts facts{
      {"server", options.url},
      {"model", valid_utf8(model)},
      {"client's machine", machine_name()},
      {"written", fmt::format("{:%Y-%m-%d %H:%M} UTC by quire {}",
                              fmt::gmtime(std::chrono::system_clock::now()), QUIRE_VERSION)},
      {"sent", options.concurrency > 0 ? fmt::format("by {} clients that take turns", options.concurrency)
                                       : std::string("when they were due, however many were open")}};
  const WorkloadOptions& workload = options.workload;
  const auto add_default = [&](const char* flag, const auto& given, const auto& value) {
    if (!given) facts.emplace_back(flag, fmt::format("{} (default)", value));
  };
  if (workload.trace.empty()) {
    add_default("--requests", workload.requests, workload.default_requests);
    add_default("--prompt-len", workload.prompt, workload.default_prompt);
    add_default("--output-len", workload.output, workload.default_output);
  }
  for (const auto& [flag, value] : options.given) facts.emplace_back(flag, valid_utf8(value));
  std::ofstream out(options.html, std::ios::binary | std::ios::trunc);
  out << load_page(facts, report, samples) << std::flush;
  if (!out) throw file_error(options.html, "cannot be written");
}

/// As many connections as the machine lets a process have.
void allow_connections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

std::optional<Nanos> nanos(const std::optional<double>& milliseconds) {
  if (!milliseconds) return std::nullopt;
  return static_cast<Nanos>(*milliseconds * 1e6);
}

int bench_serve(const Options& options) {
  if (!options.html.empty() && !std::ofstream(options.html, std::ios::app)) {
    throw file_error(options.html, "cannot be written");
  }
  const Workload workload = make_workload(options.workload, options.vocab_size);
  if (workload.requests.empty()) throw Error("the workload has no requests");
  allow_connections();
  LoadGenerator load(options, workload);
  load.run();
  const LoadReport report = report_load(load.samples(), workload.requests.size(), load.elapsed(),
                                        {nanos(options.slo_ttft), nanos(options.slo_tpot)});
  if (options.as_json) {
    json::object root{{"model", load.model()}, {"url", options.url}};
    for (auto& [key, value] : to_json(report)) root[key] = value;
    fmt::print("{}\n", json::serialize(root));
  } else if (report.finished > 0) {
    print_report(report);
  }
  std::fflush(stdout);
  if (!options.html.empty()) write_page(options, load.model(), report, load.samples());
  print_complaints(report);
  if (load.signal() != 0) return 128 + load.signal();
  return report.failed == 0 ? 0 : 1;
}

void add_server_options(CLI::App& command, Options& options) {
  const char* group = "Server";
  const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return command.add_option(name, value, help)->group(group)->type_name(type);
  };
  add("--url", options.url, "http://HOST:PORT", "URL")->capture_default_str();
  add("--model", options.model, "Default: the first that /v1/models names", "NAME");
  add("--api-key", options.api_key, "Sent as a bearer token", "KEY");
  add("--endpoint", options.endpoint, "completions, or chat: prompts as a user's message", "NAME")
      ->capture_default_str()
      ->check(CLI::IsMember({"completions", "chat"}));
  add("--timeout", options.timeout, "A request is given up when the server is silent for so many seconds",
      "S")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e6));
  command
      .add_flag("--stop-at-eos", options.stop_at_eos,
                "Let answers end where the model ends them; for servers that know neither ignore_eos nor "
                "return_token_ids")
      ->group(group);
}

/// The flags as they were given, for the page; never the key.
LoadFacts given_flags(const CLI::App& command) {
  LoadFacts given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->check_lname("api-key") || option->check_lname("url") ||
        option->check_lname("json") || option->check_lname("html"))
      continue;
    std::string values;
    for (const std::string& value : option->results()) values += (values.empty() ? "" : " ") + value;
    given.emplace_back(option->get_name(), values);
  }
  return given;
}

}  // namespace

void add_bench_serve(CLI::App& bench, Command& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "serve", "A running server under load over HTTP: quire's, or another with OpenAI's API");
  command->footer(
      "\nPrompts are arbitrary tokens, sent as ids. A request is good if it keeps to all of --slo-ttft and\n"
      "--slo-tpot. Ctrl-C ends the load with the figures so far. Try, with quire serve MODEL in another "
      "terminal,\n"
      "  quire bench serve --concurrency 64 --requests 64\n"
      "  quire bench serve --rate 2 --requests 200 --output-len lognormal:150:0.6 --slo-ttft 2000\n"
      "  quire bench serve --trace trace.csv --trace-speed 4 --html load.html");
  add_server_options(*command, *options);
  auto* concurrency =
      command
          ->add_option("--concurrency,--max-concurrency", options->concurrency,
                       "So many clients, each of which sends its next request when its last has ended, "
                       "whenever they are due; 0: requests go when they are due, however many are open")
          ->capture_default_str()
          ->check(CLI::Range(0, 100000))
          ->type_name("N");
  auto* vocab = command->add_option("--vocab-size", options->vocab_size, "Prompts have ids below N")
                    ->capture_default_str()
                    ->check(CLI::Range(2, 1 << 24))
                    ->type_name("N");
  command
      ->add_flag("--words", options->words,
                 "Prompts of so many short words instead of ids; the server says how many tokens they are")
      ->excludes(vocab);
  command
      ->add_option("--slo-ttft", options->slo_ttft, "Objective for the time to the first token, milliseconds")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("MS");
  command
      ->add_option("--slo-tpot", options->slo_tpot, "Objective for the time per further token, milliseconds")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("MS");
  command->add_flag("--json", options->as_json, "One JSON object; times in nanoseconds");
  command->add_option("--html", options->html, "Write a page with plots too, one file without a network")
      ->type_name("FILE");
  add_workload_options(*command, options->workload);
  for (const char* flag : {"--rate", "--burst"}) concurrency->excludes(command->get_option(flag));
  command->callback([options, command, &run] {
    options->given = given_flags(*command);
    run = [options] { return bench_serve(*options); };
  });
}

}  // namespace quire::cli
