// What the control plane is worth, in virtual time: paged against contiguous K/V, continuous against static
// batching, a shared prompt, the guard against thrashing, and the order of admission. The same figures on
// every machine. docs/measurements/control-plane.md says what was seen.
//
//   bench_scenarios [--trace FILE] [--part paging|batching|sharing|thrashing|scheduling] [--json FILE]
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "control/kv/block_table.h"
#include "sim/kept_requests.h"
#include "sim/report.h"
#include "sim/simulation.h"
#include "sim/trace.h"

namespace quire {
namespace {

namespace json = boost::json;

double seconds(Nanos time) { return static_cast<double>(time) / 1e9; }
double ratio(uint64_t part, uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<uint64_t>(1, whole));
}

/// About what an 8 B model in bf16 does on one data-centre GPU: 20,000 prompt tokens a second, 11 ms for a
/// step that decodes one sequence, 17 ms for one that decodes 64.
backend::sim::LinearCost device() {
  return {.step = 1'000'000,
          .prefill_tokens_per_ms = 20,
          .decode = 10'000'000,
          .decode_more = 100'000,
          .swap_block = 100'000};
}

control::SchedulerConfig roomy(uint32_t max_num_seqs) {
  control::SchedulerConfig config;
  config.num_blocks = 16384;
  config.max_num_seqs = max_num_seqs;
  config.max_num_batched_tokens = 2048;
  config.max_model_len = 65536;
  config.max_waiting = UINT32_MAX;
  config.costs = device().hints(max_num_seqs);
  return config;
}

sim::SimulationReport simulate(const control::SchedulerConfig& scheduler, const sim::Workload& workload) {
  sim::Simulation simulation({scheduler, device()}, workload);
  const sim::ReportBuilder report(simulation);
  simulation.run();
  return report.report();
}

// ---- paged against contiguous ----

constexpr uint32_t kSlots = 32768;  // K/V of so many tokens
constexpr uint32_t kMean = 290;
constexpr const char* kSigma = "0.8";
constexpr uint32_t kRuns = 200;

struct Fit {
  double sequences = 0;
  double utilisation = 0;  // token places that hold a token, of all
  double inside = 0;       // token places held and empty, of all; the rest is free
};

/// Sequences come in with all their tokens until the next one does not fit; mean of kRuns draws. A contiguous
/// cache is one whose blocks have room for the longest sequence.
Fit fit(uint32_t longest, uint32_t block_size) {
  const sim::Lengths lengths =
      sim::Lengths::parse(fmt::format("lognormal:{}:{}:{}", kMean, kSigma, longest), "");
  Fit sum;
  for (uint32_t run = 0; run < kRuns; ++run) {
    SplitMix64 random(keyed_random(1, run, 0));
    control::BlockPool pool(
        control::PrefixCache(kSlots / block_size, block_size,
                             control::make_eviction(control::EvictionKind::kLru, kSlots / block_size)));
    std::vector<control::BlockTable> tables;
    std::vector<control::BlockCopy> copies;
    uint64_t tokens = 0;
    while (true) {
      const uint32_t length = lengths.draw(random);
      control::BlockTable table;
      if (table.room(pool, 0) < length) break;
      table.prepare_write(pool, 0, length, copies);
      tables.push_back(std::move(table));
      tokens += length;
    }
    const uint64_t held = uint64_t{pool.num_referenced()} * block_size;
    sum.sequences += static_cast<double>(tables.size());
    sum.utilisation += ratio(tokens, kSlots);
    sum.inside += ratio(held - tokens, kSlots);
    for (control::BlockTable& table : tables) table.clear(pool);
  }
  return {sum.sequences / kRuns, sum.utilisation / kRuns, sum.inside / kRuns};
}

json::object paging() {
  fmt::print(
      "\nK/V of {} tokens, lengths log-normal with mean {} and sigma {}, cut at the maximum; {} draws\n\n",
      kSlots, kMean, kSigma, kRuns);
  fmt::print("| maximum length | cache | sequences | used % | empty in blocks % | free % |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  json::array rows;
  for (const uint32_t longest : {512U, 1024U, 2048U, 4096U, 8192U}) {
    for (const bool paged : {true, false}) {
      const Fit got = fit(longest, paged ? 16 : longest);
      const char* cache = paged ? "paged" : "contiguous";
      fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |\n", longest, cache, got.sequences,
                 100 * got.utilisation, 100 * got.inside, 100 * (1 - got.utilisation - got.inside));
      rows.push_back({{"max_length", longest},
                      {"cache", cache},
                      {"sequences", got.sequences},
                      {"utilisation", got.utilisation},
                      {"empty_in_blocks", got.inside}});
    }
  }
  // The same in time: requests that wait for memory alone.
  sim::WorkloadConfig load;
  load.num_requests = 2000;
  load.prompt = sim::Lengths::parse("lognormal:145:0.8:1024", "");
  load.output = sim::Lengths::parse("lognormal:145:0.8:1024", "");
  const sim::Workload workload = sim::make_workload(load);
  fmt::print("\n| cache | output tokens/s | running on average |\n|---|---|---|\n");
  json::array runs;
  for (const uint32_t block_size : {16U, 2048U}) {
    control::SchedulerConfig config = roomy(1024);
    config.block_size = block_size;
    config.num_blocks = kSlots / block_size;
    config.max_model_len = 2048;
    config.enable_prefix_caching = false;
    const sim::SimulationReport report = simulate(config, workload);
    const char* cache = block_size == 16 ? "paged" : "contiguous";
    const double rate = static_cast<double>(report.output_tokens) / seconds(report.elapsed);
    const double running = ratio(report.totals.running_micros, static_cast<uint64_t>(report.elapsed) / 1000);
    fmt::print("| {} | {:.0f} | {:.1f} |\n", cache, rate, running);
    runs.push_back({{"cache", cache}, {"tokens_per_second", rate}, {"running", running}});
  }
  return {{"fit", std::move(rows)}, {"simulated", std::move(runs)}};
}

// ---- continuous against static batching ----

json::object batching() {
  sim::WorkloadConfig load;
  load.num_requests = 4000;
  load.prompt = sim::Lengths::parse("uniform:32:256", "");
  load.output = sim::Lengths::parse("uniform:16:256", "");
  control::SchedulerConfig config = roomy(32);
  const auto measure = [&](control::BatchingKind kind, double per_second) {
    load.rate_thousandths = static_cast<uint64_t>(per_second * 1000);
    config.batching = kind;
    return simulate(config, sim::make_workload(load));
  };
  const auto ceiling = [&](control::BatchingKind kind) {
    const sim::SimulationReport all = measure(kind, 0);
    return static_cast<double>(all.totals.finished) / seconds(all.elapsed);
  };
  const double continuous = ceiling(control::BatchingKind::kContinuous);
  const double fixed = ceiling(control::BatchingKind::kStatic);
  fmt::print("\nall requests at once: continuous {:.2f} requests/s, static {:.2f}, {:.2f} times as many\n\n",
             continuous, fixed, continuous / fixed);
  fmt::print("| requests/s | of static's ceiling % | batching | TTFT p50 s | p99 s | e2e p50 s |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  json::array rows;
  for (const double share : {0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1, 1.2, 1.3, 1.4}) {
    for (const control::BatchingKind kind :
         {control::BatchingKind::kContinuous, control::BatchingKind::kStatic}) {
      const double rate = share * fixed;
      const sim::SimulationReport report = measure(kind, rate);
      const std::string_view name = control::kBatchingNames[static_cast<size_t>(kind)];
      fmt::print("| {:.2f} | {:.0f} | {} | {:.3f} | {:.3f} | {:.3f} |\n", rate, 100 * share, name,
                 seconds(report.ttft.p50), seconds(report.ttft.p99), seconds(report.e2e.p50));
      rows.push_back({{"requests_per_second", rate},
                      {"share", share},
                      {"batching", name},
                      {"ttft_p50", seconds(report.ttft.p50)},
                      {"ttft_p99", seconds(report.ttft.p99)},
                      {"e2e_p50", seconds(report.e2e.p50)}});
    }
  }
  return {{"ceiling_continuous", continuous}, {"ceiling_static", fixed}, {"load", std::move(rows)}};
}

// ---- a shared prompt ----

json::object sharing() {
  constexpr uint32_t kShared = 512, kOwn = 8, kRequests = 64;
  sim::WorkloadConfig load;
  load.num_requests = kRequests;
  load.prefix_length = kShared;
  load.prompt = sim::Lengths::parse(fmt::format("{}", kOwn), "");
  load.output = sim::Lengths::parse("64", "");
  fmt::print("\n{} requests at once: {} tokens in common, {} of their own\n\n", kRequests, kShared, kOwn);
  fmt::print(
      "| tokens a step | prefix cache | blocks hit, of those in common % | prefill computed | saved % | TTFT "
      "p50 "
      "ms |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  json::array rows;
  for (const auto& [budget, caching] : {std::pair(512U, true), {2048U, true}, {512U, false}}) {
    control::SchedulerConfig config = roomy(kRequests);
    config.max_num_batched_tokens = budget;
    config.enable_prefix_caching = caching;
    const sim::SimulationReport report = simulate(config, sim::make_workload(load));
    const double hit = ratio(report.last.total_prefix_hit_tokens, uint64_t{kRequests} * kShared);
    const double saved = 1 - ratio(report.totals.prefill_tokens, uint64_t{kRequests} * (kShared + kOwn));
    fmt::print("| {} | {} | {:.1f} | {} | {:.1f} | {:.1f} |\n", budget, caching ? "on" : "off", 100 * hit,
               report.totals.prefill_tokens, 100 * saved, static_cast<double>(report.ttft.p50) / 1e6);
    rows.push_back({{"budget", budget},
                    {"prefix_cache", caching},
                    {"hit_rate", hit},
                    {"prefill_tokens", report.totals.prefill_tokens},
                    {"prefill_saved", saved},
                    {"ttft_p50", seconds(report.ttft.p50)},
                    {"ttft_p99", seconds(report.ttft.p99)}});
  }
  return {{"rows", std::move(rows)}};
}

// ---- the guard against thrashing ----

struct Guard {
  const char* admitted;
  bool eagerly;
  bool while_preempting;
};
constexpr Guard kGuards[] = {{"unguarded", true, true},
                             {"with one block", true, false},
                             {"while preempting", false, true},
                             {"guarded", false, false}};

json::object thrashing() {
  sim::WorkloadConfig load;
  load.num_requests = 256;
  load.prompt = sim::Lengths::parse("uniform:512:1024", "");
  load.output = sim::Lengths::parse("uniform:256:1024", "");
  const sim::Workload workload = sim::make_workload(load);
  fmt::print(
      "\n256 requests at once of 512 to 1,024 tokens with answers of 256 to 1,024; the pool holds 16,384 "
      "tokens\n\n");
  fmt::print(
      "| prefix cache | admitted | watermark % | preemptions | computed again % | output tokens/s |\n"
      "|---|---|---|---|---|---|\n");
  json::array rows;
  for (const bool caching : {false, true}) {
    for (const auto& [admitted, eager, while_preempting] : kGuards) {
      for (const uint32_t watermark_bp : {0U, 100U, 200U, 500U, 1000U}) {
        control::SchedulerConfig config = roomy(256);
        config.num_blocks = 1024;
        config.enable_prefix_caching = caching;
        config.watermark_bp = watermark_bp;
        config.admit_eagerly = eager;
        config.admit_while_preempting = while_preempting;
        const sim::SimulationReport report = simulate(config, workload);
        const uint64_t computed = report.totals.prefill_tokens + report.totals.decode_tokens;
        const uint64_t least = report.prompt_tokens + report.output_tokens - load.num_requests;
        const double again = ratio(computed, least) - 1;
        const double rate = static_cast<double>(report.output_tokens) / seconds(report.elapsed);
        fmt::print("| {} | {} | {} | {} | {:.1f} | {:.0f} |\n", caching ? "on" : "off", admitted,
                   watermark_bp / 100.0, report.last.total_preemptions, 100 * again, rate);
        rows.push_back({{"prefix_cache", caching},
                        {"admitted", admitted},
                        {"watermark", watermark_bp / 1e4},
                        {"preemptions", report.last.total_preemptions},
                        {"computed_again", again},
                        {"tokens_per_second", rate},
                        {"seconds", seconds(report.elapsed)}});
      }
    }
  }
  return {{"rows", std::move(rows)}};
}

// ---- who comes in first ----

struct Order {
  const char* name;
  control::SchedulingKind kind;
  bool lengths_known;
};
constexpr Order kOrders[] = {{"fcfs", control::SchedulingKind::kFcfs, false},
                             {"srpt", control::SchedulingKind::kSrpt, false},
                             {"srpt, lengths known", control::SchedulingKind::kSrpt, true},
                             {"slo", control::SchedulingKind::kSlo, false}};

json::object describe(const Order& order, const sim::SimulationReport& report) {
  const auto times = [](const sim::Percentiles& of) {
    return json::object{{"mean", seconds(of.mean)},
                        {"p50", seconds(of.p50)},
                        {"p90", seconds(of.p90)},
                        {"p99", seconds(of.p99)}};
  };
  return {{"policy", order.name},
          {"ttft", times(report.ttft)},
          {"e2e", times(report.e2e)},
          {"finished", report.totals.finished},
          {"in_time", ratio(report.in_time, report.totals.finished)},
          {"preemptions", report.last.total_preemptions}};
}

/// One place to run in; the long request comes first and may take its time, the short ones may not.
json::array three_requests() {
  sim::Workload workload;
  workload.requests = {{.prompt_length = 512, .output_length = 400, .ttft_deadline = 60'000'000'000},
                       {.prompt_length = 64, .output_length = 20, .ttft_deadline = 1'000'000'000},
                       {.prompt_length = 64, .output_length = 20, .ttft_deadline = 500'000'000}};
  fmt::print(
      "\none long request (512 in, 400 out, due in 60 s) and two short ones (64 in, 20 out, due in 1 s and\n"
      "0.5 s), one at a time\n\n| policy | ends s: long, short, short | mean s | in time "
      "|\n|---|---|---|---|\n");
  json::array rows;
  for (const Order& order : kOrders) {
    workload.lengths_known = order.lengths_known;
    const control::SchedulerConfig config = [&] {
      control::SchedulerConfig one = roomy(1);
      one.scheduling = order.kind;
      return one;
    }();
    sim::Simulation simulation({config, device()}, workload);
    const sim::ReportBuilder builder(simulation);
    const sim::KeptRequests requests(simulation);
    simulation.run();
    const sim::SimulationReport report = builder.report();
    json::object row = describe(order, report);
    json::array ends;
    for (const sim::KeptRequest& record : requests.records()) ends.push_back(seconds(record.finished));
    fmt::print("| {} | {:.2f}, {:.2f}, {:.2f} | {:.2f} | {} of 3 |\n", order.name, ends[0].as_double(),
               ends[1].as_double(), ends[2].as_double(), seconds(report.e2e.mean), report.in_time);
    row["ends"] = std::move(ends);
    rows.push_back(std::move(row));
  }
  return rows;
}

json::array azure(const std::string& trace) {
  fmt::print("\nAzure's conversation trace, first tokens due after 1 to 20 s\n\n");
  fmt::print(
      "| speed | policy | TTFT mean s | p50 | p99 | e2e mean s | p50 | p99 | in time % | preemptions |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|---|\n");
  json::array rows;
  for (const uint32_t speed : {1000U, 1200U, 1300U, 1400U}) {
    sim::Workload workload = sim::read_trace(trace, {.speed_thousandths = speed});
    sim::assign_service(workload, {.ttft_deadline_ms = sim::Lengths::parse("uniform:1000:20000", "")});
    for (const Order& order : kOrders) {
      workload.lengths_known = order.lengths_known;
      control::SchedulerConfig config = roomy(64);
      config.num_blocks = 6144;
      config.scheduling = order.kind;
      const sim::SimulationReport report = simulate(config, workload);
      fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.1f} | {} |\n",
                 speed / 1000.0, order.name, seconds(report.ttft.mean), seconds(report.ttft.p50),
                 seconds(report.ttft.p99), seconds(report.e2e.mean), seconds(report.e2e.p50),
                 seconds(report.e2e.p99), 100 * ratio(report.in_time, report.totals.finished),
                 report.last.total_preemptions);
      std::fflush(stdout);
      json::object row = describe(order, report);
      row["speed"] = speed / 1000.0;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

json::object scheduling(const std::string& trace) {
  json::object out{{"three_requests", three_requests()}};
  if (std::filesystem::exists(trace)) {
    out["azure"] = azure(trace);
  } else {
    fmt::print("{} is absent: left out\n", trace);
  }
  return out;
}

void run(int argc, char** argv) {
  const char* data = std::getenv("QUIRE_DATA");
  std::string trace = fmt::format("{}/traces-azure/AzureLLMInferenceTrace_conv.csv",
                                  data != nullptr ? data : "../shared/data");
  std::string part;
  std::string json_path;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) throw Error(fmt::format("{}: wants a value", flag));
    if (flag != "--trace" && flag != "--part" && flag != "--json") {
      throw Error(fmt::format("{}: no such flag", flag));
    }
    (flag == "--trace" ? trace : flag == "--part" ? part : json_path) = argv[i + 1];
  }
  json::object out;
  const auto wanted = [&](const char* name) { return part.empty() || part == name; };
  if (wanted("paging")) out["paging"] = paging();
  if (wanted("batching")) out["batching"] = batching();
  if (wanted("sharing")) out["sharing"] = sharing();
  if (wanted("thrashing")) out["thrashing"] = thrashing();
  if (wanted("scheduling")) out["scheduling"] = scheduling(trace);
  if (out.empty()) throw Error(fmt::format("--part: there is no '{}'", part));
  if (!json_path.empty()) std::ofstream(json_path) << json::serialize(out) << '\n';
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  try {
    quire::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_scenarios: {}\n", error.what());
    return 1;
  }
}
