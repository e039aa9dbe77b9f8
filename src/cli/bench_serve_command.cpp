// bench serve: requests over HTTP to a running server, ours or another that speaks OpenAI's API.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/machine_name.h"
#include "base/output_file.h"
#include "bench/load_generator.h"
#include "bench/load_report.h"
#include "bench/load_table.h"
#include "bench/page_frame.h"
#include "bench/run_data.h"
#include "bench/run_file.h"
#include "bench/run_page.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/open_files.h"
#include "cli/sim_options.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "cli/workload_options.h"
#include "record/display_text.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

constexpr uint32_t kTableWarmup = 4;  // requests

struct BenchServeOptions {
  WorkloadOptions workload{
      .first_turns_only = true, .default_requests = 64, .default_prompt = "64", .default_output = "150"};
  bench::LoadTarget target;
  std::string endpoint = "completions";
  std::vector<uint32_t> concurrency = {0};  // 0: as they arrive; several: a row each
  std::optional<uint32_t> warmup;
  uint32_t vocab_size = 1000;
  std::string slo_text;
  sim::Slo slo;
  bool as_json = false;
  std::string html;
  std::string overlay;
  bench::PageFacts given;  // the flags of the command line

  bool is_table() const { return concurrency.size() > 1; }
  uint32_t warmup_requests() const { return warmup.value_or(is_table() ? kTableWarmup : 0); }
};

void print_report(const bench::LoadReport& report) {
  fmt::print("{} requests in {:.2f} s ({} failed): {:.1f} output tokens/s, {:.2f} requests/s\n",
             report.finished, report.seconds(), report.failed, report.per_second(report.output_tokens),
             report.per_second(report.finished));
  fmt::print("{} tokens in, {} out{}\n", with_commas(report.prompt_tokens), with_commas(report.output_tokens),
             report.tokens_said ? "" : " (pieces of text: the server does not say how many tokens)");
  if (report.slo.any()) {
    fmt::print("{} of {}{} within {}: {:.2f} good requests/s\n", report.good,
               report.requests - report.unfinished, report.unfinished > 0 ? " that had ended" : "",
               report.slo.text(), report.per_second(report.good));
  }
  const std::pair<const char*, sim::Percentiles> times[] = {{"to the first token", report.ttft},
                                                            {"per further token", report.tpot},
                                                            {"between two tokens", report.itl},
                                                            {"to the last token", report.e2e}};
  print_times(times);
}

/// What went wrong, on standard error.
void print_complaints(const bench::LoadReport& report) {
  if (report.unfinished > 0) {
    fmt::print(stderr, "quire: interrupted; {} of {} requests had not ended\n", report.unfinished,
               report.requests);
  }
  if (report.short_answers > 0) {
    fmt::print(stderr, "quire: {} answers were shorter than asked for\n", report.short_answers);
  }
  constexpr size_t kMost = 5;
  for (size_t i = 0; i < std::min(kMost, report.errors.size()); ++i) {
    const bench::LoadErrors& each = report.errors[i];
    fmt::print(stderr, "quire: {} of {} requests failed: {}\n", each.count, report.requests, each.example);
  }
  if (report.errors.size() > kMost) {
    fmt::print(stderr, "quire: and {} other kinds of errors\n", report.errors.size() - kMost);
  }
}

/// What a page says of the run above its figures.
bench::PageFacts facts_of(const BenchServeOptions& options, const std::string& model) {
  std::string sent = "at their arrival times, however many were open";
  if (options.is_table()) {
    sent = fmt::format("by {} clients, one number after the other", fmt::join(options.concurrency, ", "));
  } else if (options.concurrency.front() > 0) {
    sent = fmt::format("by {} clients, each with one open request", options.concurrency.front());
  } else if (options.workload.users) {
    sent = fmt::format("by {} users, each after the answer before and the time to think",
                       *options.workload.users);
  }
  bench::PageFacts facts{{"server", options.target.url},
                         {"model", record::valid_utf8(model)},
                         {"client's machine", machine_name()},
                         {"written", fmt::format("{:%Y-%m-%d %H:%M} UTC by quire {}",
                                                 fmt::gmtime(std::chrono::system_clock::now()), version())},
                         {"sent", sent},
                         {"warm-up", fmt::format("{} requests", options.warmup_requests())}};
  const WorkloadOptions& workload = options.workload;
  const auto add_default = [&](const char* flag, const auto& given, const auto& value) {
    if (!given) facts.emplace_back(flag, fmt::format("{} (default)", value));
  };
  if (workload.trace.empty()) {
    add_default("--requests", workload.requests, workload.default_requests);
    add_default("--prompt-len", workload.prompt, workload.default_prompt);
    add_default("--output-len", workload.output, workload.default_output);
  }
  for (const auto& [flag, value] : options.given) facts.emplace_back(flag, record::valid_utf8(value));
  return facts;
}

bench::LoadReport report_of(const BenchServeOptions& options, const sim::Workload& workload,
                            const bench::LoadGenerator& load) {
  return bench::report_load(load.samples(), workload.requests.size(), load.elapsed(), options.slo);
}

/// The same lengths and times with other tokens, so that a server finds nothing of them in its prefix cache.
sim::Workload with_other_tokens(sim::Workload workload, uint64_t number) {
  workload.seed = mix64(workload.seed ^ mix64(number + 1));
  return workload;
}

void run_with_progress(bench::LoadGenerator& load, const sim::Workload& workload) {
  Progress progress("requests", workload.requests.size());
  load.run([&] { progress.advance(); });
}

/// Requests that are not counted. Returns the signal that ended them, or 0.
int warm_up(const BenchServeOptions& options, const sim::Workload& workload) {
  sim::Workload few = with_other_tokens(workload, 0);
  few.requests.resize(std::min<size_t>(few.requests.size(), options.warmup_requests()));
  if (few.requests.empty()) return 0;
  bench::LoadGenerator load(options.target, few, options.warmup_requests());
  run_with_progress(load, few);
  return load.signal();
}

json::object flags_json(const BenchServeOptions& options) {
  json::object out;
  for (const auto& [flag, value] : options.given) out[flag] = record::valid_utf8(value);
  return out;
}

/// `other`: the run of --overlay.
void write_page(const BenchServeOptions& options, const bench::LoadGenerator& load,
                const bench::LoadReport& report, const std::optional<bench::RunData>& other) {
  if (options.html.empty()) return;
  bench::RunData run = bench::run_of(report, load.samples(), load.timeline());
  run.settings = facts_of(options, load.model());
  write_output_file(options.html, bench::page_kind(), bench::run_page(run, other ? &*other : nullptr));
}

int one_load(const BenchServeOptions& options, const sim::Workload& workload,
             const std::optional<bench::RunData>& other) {
  if (const int signal = warm_up(options, workload); signal != 0) return 128 + signal;
  bench::LoadGenerator load(options.target, workload, options.concurrency.front(), !options.html.empty());
  run_with_progress(load, workload);
  const bench::LoadReport report = report_of(options, workload, load);
  if (options.as_json) {
    json::object root{{"model", load.model()}, {"url", options.target.url}, {"flags", flags_json(options)}};
    for (auto& [key, value] : to_json(report)) root[key] = value;
    add_requests(root, load.samples());
    fmt::print("{}\n", json::serialize(root));
  } else if (report.finished > 0) {
    print_report(report);
  }
  std::fflush(stdout);
  write_page(options, load, report, other);
  print_complaints(report);
  if (load.signal() != 0) return 128 + load.signal();
  return report.failed == 0 ? 0 : 1;
}

/// The workload by so many clients, then by so many ...
int table_of_loads(const BenchServeOptions& options, const sim::Workload& workload) {
  int signal = warm_up(options, workload);
  bool any_failed = false;
  bench::LoadTarget target = options.target;
  std::vector<bench::LoadRow> rows;
  if (!options.as_json) {
    fmt::print(
        "{} requests a row, of the same lengths and other tokens each time; {} before them to warm up.\n"
        "Times in milliseconds; K/V: the most of the pool that was seen held; memory of the server: at the "
        "end, "
        "at most\n\n",
        with_commas(workload.requests.size()), options.warmup_requests());
    fmt::print("{}\n",
               paint(stdout, bench::load_table_head(options.concurrency.front()), fmt::emphasis::bold));
    std::fflush(stdout);
  }
  for (const uint32_t clients : options.concurrency) {
    if (signal != 0) break;
    const sim::Workload own = with_other_tokens(workload, clients);
    bench::LoadGenerator load(target, own, clients, true);
    run_with_progress(load, own);
    signal = load.signal();
    target.model = load.model();
    rows.push_back({clients, report_of(options, own, load), load.footprint()});
    const bench::LoadRow& row = rows.back();
    any_failed = any_failed || row.report.failed > 0;
    if (!options.as_json) fmt::print("{}\n", bench::load_table_line(row, rows.front()));
    std::fflush(stdout);
    print_complaints(row.report);
  }
  if (options.as_json) {
    const json::object root{{"model", target.model},
                            {"url", options.target.url},
                            {"requests_a_row", workload.requests.size()},
                            {"warmup_requests", options.warmup_requests()},
                            {"rows", to_json(rows)}};
    fmt::print("{}\n", json::serialize(root));
    std::fflush(stdout);
  }
  if (!options.html.empty() && !rows.empty()) {
    write_output_file(options.html, bench::page_kind(),
                      bench::load_table_page(facts_of(options, target.model), rows));
  }
  if (signal != 0) return 128 + signal;
  return any_failed ? 1 : 0;
}

/// One key is one tenant.
void print_unsent_tenants(const BenchServeOptions& options, const sim::Workload& workload) {
  if (options.target.api_key.empty() || !bench::has_tenants(workload)) return;
  fmt::print(stderr,
             "quire: the tenants of {} requests are not sent: with --api-key, all are of the key's tenant\n",
             workload.requests.size());
}

int bench_serve(const BenchServeOptions& options) {
  check_output_file(options.html, bench::page_kind());
  std::optional<bench::RunData> other;
  if (!options.overlay.empty()) other = bench::read_run(options.overlay);
  const sim::Workload workload = make_workload(options.workload, options.vocab_size);
  print_notes(workload);
  print_unsent_tenants(options, workload);
  if (workload.requests.empty()) throw Error("--requests: the workload has no requests");
  raise_open_files();
  return options.is_table() ? table_of_loads(options, workload) : one_load(options, workload, other);
}

/// What has no meaning together. Throws Error naming the flag.
void settle(BenchServeOptions& options, const Flags& command) {
  check_workload_options(options.workload);
  if (!options.slo_text.empty()) options.slo = sim::Slo::parse(options.slo_text, "--slo");
  options.target.is_chat = options.endpoint == "chat";
  if (options.target.is_chat) {
    for (const char* flag : {"--words", "--vocab-size"}) {
      refuse_if_given(command, flag, "with --endpoint chat, whose prompts are words");
    }
  }
  if (options.html.empty()) refuse_if_given(command, "--overlay", "without --html");
  if (options.is_table()) refuse_if_given(command, "--overlay", "with several numbers of clients");
  std::vector<uint32_t>& clients = options.concurrency;
  std::sort(clients.begin(), clients.end());
  if (const auto twice = std::adjacent_find(clients.begin(), clients.end()); twice != clients.end()) {
    throw Error(fmt::format("--concurrency: {} is given twice", *twice));
  }
  if (clients.back() == 0) return;
  if (clients.front() == 0)
    throw Error("--concurrency: 0 is not a number of clients, so it has no row in a table");
  for (const char* flag : {"--rate", "--burst", "--trace-speed", "--users", "--think-time-ms"}) {
    if (command.is_given(flag)) {
      throw Error(fmt::format(
          "--concurrency: cannot be combined with {}: clients wait for no time, only for their last answer",
          flag));
    }
  }
  WorkloadOptions& workload = options.workload;
  workload.default_requests = std::max(workload.default_requests, clients.back());
  if (workload.requests.value_or(clients.back()) < clients.back()) {
    throw Error(fmt::format("--concurrency: {} clients have only {} requests (--requests)", clients.back(),
                            *workload.requests));
  }
}

void add_server_options(const Flags& command, BenchServeOptions& options) {
  const char* group = "Server";
  const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return command.add_option(name, value, help).group(group).value_name(type);
  };
  add("--url", options.target.url, "http://HOST:PORT", "URL").show_default();
  add("--model", options.target.model, "Model to ask for; default: the first in /v1/models", "NAME");
  add("--api-key", options.target.api_key, "API key, sent as a bearer token", "KEY");
  add("--endpoint", options.endpoint, "completions, or chat: the prompt as a user message", "NAME")
      .show_default()
      .one_of({"completions", "chat"});
  add("--timeout", options.target.timeout, "Seconds of silence from the server after which a request fails",
      "S")
      .show_default()
      .number_range(0.001, 1e6);
  command
      .add_flag(
          "--stop-at-eos", options.target.stop_at_eos,
          "Let the model end its answers; for servers that know neither ignore_eos nor return_token_ids")
      .group(group);
}

/// The flags as they were given, for the page; never the key.
bench::PageFacts given_flags(const Flags& command) {
  bench::PageFacts given = command.given();
  std::erase_if(given, [](const auto& flag) {
    const std::string& name = flag.first;
    return name == "--api-key" || name == "--url" || name == "--json" || name == "--html" ||
           name == "--overlay";
  });
  return given;
}

}  // namespace

void add_bench_serve(const Flags& bench, Command& run) {
  auto options = std::make_shared<BenchServeOptions>();
  const Flags command = bench.add_command(
      "serve", "Load a running server over HTTP: quire's, or another with an OpenAI-compatible API");
  command.footer(
      "\nPrompts are arbitrary tokens, sent as ids. A request is good if it meets --slo.\n"
      "Ctrl-C ends the load and shows the results so far.\n\n"
      "Times, as their client sees them:\n"
      "  to the first token (TTFT)  from the request's arrival time, or with --concurrency from its sending\n"
      "  per further token (TPOT)   from the first token to the end, divided by the tokens after the first\n"
      "  between two tokens (ITL)   tokens that arrive at once, in one event or one read, share the time\n"
      "                             since those before; vLLM's benchmark has the time from event to event,\n"
      "                             which is next to 0 for all but the first of a read\n"
      "  to the last token (E2E)    the whole answer\n\n"
      "Try, with quire serve MODEL in another terminal,\n"
      "  quire bench serve --concurrency 1,4,16,64 --html table.html\n"
      "  quire bench serve --rate 2 --requests 200 --output-len lognormal:150:0.6 --slo ttft=2s\n"
      "  quire bench serve --users 20 --think-time-ms exponential:3000 --requests 400\n"
      "  quire bench serve --trace trace.csv --trace-speed 4 --html load.html");
  add_server_options(command, *options);
  command
      .add_option(
          "--concurrency,--max-concurrency", options->concurrency,
          "Number of clients, each of which sends its next request when its previous one has ended, whatever "
          "their arrival times. Several numbers: one load after the other, and a table of tokens/s, times "
          "and the server's memory. 0: requests are sent at their arrival times, however many are open")
      .comma_separated()
      .one_value()
      .show_default("0")
      .range(0, 100000)
      .value_name("N,N,...");
  command
      .add_option(
          "--warmup,--num-warmups", options->warmup,
          fmt::format("Requests sent at once before all others and not counted (default 0, for a table {})",
                      kTableWarmup))
      .range(0, 100000)
      .value_name("N");
  const Flag vocab =
      command.add_option("--vocab-size", options->vocab_size, "Token ids of prompts are below N")
          .show_default()
          .range(2, 1 << 24)
          .value_name("N");
  command
      .add_flag("--words", options->target.words,
                "Prompts of short words instead of token ids; the server counts their tokens")
      .excludes(vocab);
  add_slo_option(command, options->slo_text);
  command.add_flag("--json", options->as_json,
                   "One JSON object, with a record of each request; times in nanoseconds");
  command.add_option("--html", options->html, "Also write an HTML page with plots (one file, works offline)")
      .value_name("FILE");
  add_overlay_option(command, options->overlay);
  add_workload_options(command, options->workload);
  add_user_options(command, options->workload);
  command.callback([options, command, &run] {
    settle(*options, command);
    options->given = given_flags(command);
    run = [options] { return bench_serve(*options); };
  });
}

}  // namespace quire::cli
