// bench serve: requests over HTTP to a running server, ours or another that speaks OpenAI's API.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/load_client.h"
#include "cli/sim_options.h"
#include "cli/terminal.h"
#include "cli/workload_options.h"
#include "sim/report.h"

namespace quire::cli {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

struct Options {
  WorkloadOptions workload{.default_requests = 64, .default_prompt = "64", .default_output = "150"};
  std::string url = "http://127.0.0.1:8000";
  std::string model;
  std::string api_key;
  uint32_t concurrency = 0;  // 0: as they arrive
  uint32_t vocab_size = 1000;
  double slo_tpot_ms = 200;
  bool as_json = false;
};

/// What the requests came to, added up as they end.
struct Totals {
  std::vector<Nanos> ttft;
  std::vector<Nanos> tpot;
  std::vector<Nanos> gaps;
  std::vector<Nanos> e2e;
  uint64_t prompt_tokens = 0;
  uint64_t output_tokens = 0;
  uint64_t failed = 0;
  uint64_t good = 0;
  std::string first_error;

  void add(const StreamedAnswer& answer, Nanos arrival, Nanos deadline, Nanos slo_tpot) {
    if (!answer.error.empty() || answer.first < 0) {
      ++failed;
      if (first_error.empty()) first_error = answer.error.empty() ? "an answer without text" : answer.error;
      return;
    }
    prompt_tokens += answer.prompt_tokens;
    output_tokens += answer.tokens;
    ttft.push_back(answer.first - arrival);
    e2e.push_back(answer.last - arrival);
    gaps.insert(gaps.end(), answer.gaps.begin(), answer.gaps.end());
    Nanos each = 0;
    if (answer.tokens > 1) {
      each = (answer.last - answer.first) / (answer.tokens - 1);
      tpot.push_back(each);
    }
    good += answer.first - arrival <= deadline && each <= slo_tpot ? 1 : 0;
  }
};

class LoadGenerator {
 public:
  LoadGenerator(const Options& options, const Workload& workload)
      : options_(options),
        workload_(workload),
        url_(ServerUrl::parse(options.url, "--url")),
        model_(options.model),
        progress_("requests", workload.requests.size()) {}

  /// Seconds that it took.
  double run() {
    std::exception_ptr failed;
    asio::co_spawn(io_, drive(), [&](std::exception_ptr error) { failed = error; });
    io_.run();
    if (failed) std::rethrow_exception(failed);
    return static_cast<double>(std::max<Nanos>(1, last_end_ - start_)) / 1e9;
  }
  const Totals& totals() const { return totals_; }
  const std::string& model() const { return model_; }

 private:
  asio::awaitable<void> drive() {
    if (model_.empty()) {
      LoadClient client(io_, url_, options_.api_key, clock_);
      const std::string models = co_await client.get("/v1/models");
      model_ = json::parse(models).at("data").at(0).at("id").as_string();
    }
    start_ = clock_.now();
    if (options_.concurrency > 0) {
      for (uint32_t i = 0; i < options_.concurrency; ++i)
        asio::co_spawn(io_, one_after_the_other(), asio::detached);
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
    LoadClient client(io_, url_, options_.api_key, clock_);
    while (next_ < workload_.requests.size()) co_await request(client, next_++, clock_.now());
  }

  asio::awaitable<void> alone(size_t index) {
    LoadClient client(io_, url_, options_.api_key, clock_);
    co_await request(client, index, start_ + workload_.requests[index].arrival);
  }

  asio::awaitable<void> request(LoadClient& client, size_t index, Nanos arrival) {
    const SimRequest& from = workload_.requests[index];
    json::object body{{"model", model_},    {"max_tokens", from.output_length},
                      {"ignore_eos", true}, {"temperature", 0},
                      {"stream", true},     {"stream_options", {{"include_usage", true}}}};
    json::array prompt;
    for (const TokenId token : workload_.prompt(index)) prompt.emplace_back(token);
    body["prompt"] = std::move(prompt);
    const StreamedAnswer answer = co_await client.stream("/v1/completions", json::serialize(body));
    totals_.add(answer, arrival, from.ttft_deadline, static_cast<Nanos>(options_.slo_tpot_ms * 1e6));
    last_end_ = clock_.now();
    progress_.advance();
  }

  const Options& options_;
  const Workload& workload_;
  ServerUrl url_;
  std::string model_;
  Progress progress_;
  SteadyClock clock_;
  asio::io_context io_{1};
  Totals totals_;
  size_t next_ = 0;
  Nanos start_ = 0;
  Nanos last_end_ = 0;
};

void print(const Totals& totals, double elapsed, const std::string& model, bool as_json) {
  const uint64_t finished = totals.ttft.size();
  const double output_rate = static_cast<double>(totals.output_tokens) / elapsed;
  const std::pair<const char*, Percentiles> times[] = {{"to the first token", percentiles(totals.ttft)},
                                                       {"per further token", percentiles(totals.tpot)},
                                                       {"between two pieces", percentiles(totals.gaps)},
                                                       {"to the last token", percentiles(totals.e2e)}};
  if (as_json) {
    json::object root{{"model", model},
                      {"finished", finished},
                      {"failed", totals.failed},
                      {"seconds", elapsed},
                      {"prompt_tokens", totals.prompt_tokens},
                      {"output_tokens", totals.output_tokens},
                      {"output_tokens_per_second", output_rate},
                      {"requests_per_second", static_cast<double>(finished) / elapsed},
                      {"good_requests_per_second", static_cast<double>(totals.good) / elapsed}};
    const char* const names[] = {"ttft_ns", "tpot_ns", "itl_ns", "e2e_ns"};
    for (size_t i = 0; i < std::size(names); ++i) {
      const Percentiles& of = times[i].second;
      root[names[i]] = {
          {"mean", of.mean}, {"p50", of.p50}, {"p90", of.p90}, {"p99", of.p99}, {"max", of.max}};
    }
    fmt::print("{}\n", json::serialize(root));
    return;
  }
  fmt::print("{} requests in {:.2f} s ({} failed): {:.1f} output tokens/s, {:.2f} requests/s\n", finished,
             elapsed, totals.failed, output_rate, static_cast<double>(finished) / elapsed);
  fmt::print("{} tokens in, {} out; {:.2f} requests/s within the objectives\n",
             with_commas(totals.prompt_tokens), with_commas(totals.output_tokens),
             static_cast<double>(totals.good) / elapsed);
  print_times(times);
}

int bench_serve(const Options& options) {
  const Workload workload = make_workload(options.workload, options.vocab_size);
  LoadGenerator load(options, workload);
  const double elapsed = load.run();
  const Totals& totals = load.totals();
  print(totals, elapsed, load.model(), options.as_json);
  if (totals.failed == 0) return 0;
  fmt::print(stderr, "quire: {} requests failed; the first: {}\n", totals.failed, totals.first_error);
  return 1;
}

}  // namespace

void add_bench_serve(CLI::App& bench, Command& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("serve", "A running server under load, over HTTP");
  command->footer(
      "\nPrompts are arbitrary tokens, sent as ids. Try, with quire serve MODEL in another terminal,\n"
      "  quire bench serve --concurrency 64 --requests 64\n"
      "  quire bench serve --rate 2 --requests 200 --output-len lognormal:150:0.6");
  command->add_option("--url", options->url, "The server")->capture_default_str()->type_name("URL");
  command->add_option("--model", options->model, "Default: the first that /v1/models names")
      ->type_name("NAME");
  command->add_option("--api-key", options->api_key, "Sent as a bearer token")->type_name("KEY");
  command
      ->add_option(
          "--concurrency", options->concurrency,
          "So many clients, each of which sends its next request when the last has ended; 0: requests "
          "go when they arrive, however many are open")
      ->capture_default_str()
      ->check(CLI::Range(0, 100000))
      ->type_name("N");
  command->add_option("--vocab-size", options->vocab_size, "Prompts have ids below N")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 24))
      ->type_name("N");
  command
      ->add_option("--slo-tpot-ms", options->slo_tpot_ms,
                   "Objective for each token after the first; the first one's is --ttft-deadline-ms")
      ->capture_default_str()
      ->type_name("MS");
  command->add_flag("--json", options->as_json, "One JSON object");
  add_workload_options(*command, options->workload);
  command->callback([options, &run] { run = [options] { return bench_serve(*options); }; });
}

}  // namespace quire::cli
