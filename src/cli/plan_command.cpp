// plan: what a machine carries of a model, by arithmetic.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "backend/machine.h"
#include "backend/sim/cost_file.h"
#include "base/amounts.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/machine_options.h"
#include "cli/plan_json.h"
#include "cli/plan_load.h"
#include "cli/sim_options.h"
#include "cli/terminal.h"
#include "record/display_text.h"
#include "startup/capacity_plan.h"
#include "startup/model_files.h"
#include "startup/model_options.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

constexpr uint32_t kUsualContext = 2048;

struct PlanOptions {
  std::string model;
  std::string dtype = "auto";
  startup::NumberFormats formats;
  MachineOptions machine;
  std::optional<uint32_t> context;
  uint32_t max_model_len = 0;
  uint32_t block_size = 16;
  double user_rate = 10;
  std::string cost_file;
  bool force = false;
  std::string slo;
  std::optional<uint32_t> output;
  bool as_json = false;
};

// ---- as text ----

/// "12.3", "1,234"; "?" if unknown.
std::string rate_text(double rate) {
  if (rate == 0) return "?";
  if (rate < 100) return fmt::format("{:.{}f}", rate, rate < 0.1 ? 3 : 1);
  return with_commas(static_cast<uint64_t>(std::llround(rate)));
}

/// Those with most bytes first: "12.3 GiB bf16, 1.0 MiB f32".
std::string weights_text(const backend::cpu::WeightSizes& weights) {
  std::vector<std::pair<std::string, uint64_t>> formats(weights.packed.begin(), weights.packed.end());
  std::stable_sort(formats.begin(), formats.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out;
  for (const auto& [format, bytes] : formats) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", human_bytes(bytes), format);
  }
  return out;
}

std::string_view kv_type(const startup::ModelOutline& model, const startup::NumberFormats& formats) {
  const DType type =
      startup::pick_kv_dtype(formats.kv_cache_dtype, model.config.head_dim).value_or(model.config.dtype);
  return type == DType::kI8 ? "int8" : dtype_name(type);
}

void print_machine(const startup::ChosenMachine& machine, const startup::Capacity& capacity) {
  fmt::print("{} {}\n", title("machine"), machine.title);
  fmt::print("{} reads {} GB/s, computes {} TFLOP/s with these weights\n", title(""),
             rate_text(machine.speed.bandwidth / 1e9), rate_text(capacity.arithmetic / 1e12));
  fmt::print("{} {}{}: {} weights, {} for K/V\n", title("memory"), human_bytes(machine.memory),
             machine.memory_source, human_bytes(capacity.weight_bytes), human_bytes(capacity.kv_bytes));
}

void print_memory(const startup::Capacity& capacity, std::string_view type, const startup::Demand& demand) {
  const backend::cpu::WeightSizes& weights = capacity.weights;
  const bool in_file = demand.embeddings_in_file && weights.embedding_in_file;
  fmt::print("{} {}; and {} embeddings, {}\n", title("weights"), weights_text(weights),
             human_bytes(weights.embedding_bytes), in_file ? "which stay in their file" : "in memory too");
  fmt::print("{} {} bytes a token as {}\n", title("K/V"), with_commas(capacity.shape.kv_bytes_per_token()),
             type);
  if (capacity.kv.size() > 1 || capacity.kv.front().window > 0) {
    for (const startup::WindowLayers& each : capacity.kv) {
      fmt::print("{} {} bytes in {}: {}\n", title(""), with_commas(each.bytes_per_token),
                 record::plural(each.layers, "layer"),
                 each.window == 0 ? "full attention"
                                  : fmt::format("windows of {} tokens", with_commas(each.window)));
    }
    fmt::print("{} K/V groups: {}, which share all blocks\n", title(""), capacity.shape.kv_windows.size());
  }
  fmt::print("{} {} of {} tokens, {} each: {} tokens\n", title("blocks"), with_commas(capacity.blocks),
             demand.block_size, human_bytes(capacity.block_bytes), with_commas(capacity.tokens));
  fmt::print("{} {} for {} tokens; the longest that fits has {}\n\n", title("a sequence"),
             human_bytes(capacity.paged.bytes), with_commas(demand.context),
             with_commas(capacity.longest_sequence));
}

void print_allocations(const startup::Capacity& capacity, const startup::Demand& demand) {
  fmt::print("{} {:>12} {:>22} {:>10}\n", title("allocation"), "a sequence", "of it unused", "sequences");
  const auto row = [](const char* name, const startup::Allocation& of, const std::string& note) {
    fmt::print("{:<14} {:>12} {:>12} {:>7.1f} % {:>10}{}\n", name, human_bytes(of.bytes),
               human_bytes(of.unused), percent(of.unused, of.bytes), with_commas(of.users), note);
  };
  row("paged", capacity.paged, "");
  row("contiguous", capacity.contiguous,
      fmt::format("  ({} tokens reserved for each)", with_commas(demand.max_model_len)));
}

/// "14.3 GFLOP", "0.0759 MFLOP".
std::string flops_text(double flops) {
  return flops < 1e8 ? fmt::format("{:.3g} MFLOP", flops / 1e6) : fmt::format("{:.3g} GFLOP", flops / 1e9);
}

void print_ceilings(const startup::Capacity& capacity, const startup::Demand& demand) {
  fmt::print("\n{} {:>12} {:>12} {:>12} {:>12}\n", title("tokens/s, most"), "read a step", "bandwidth",
             "arithmetic", "each user");
  for (const startup::Ceiling& each : capacity.ceilings) {
    fmt::print("{:<14} {:>12} {:>12} {:>12} {:>12}{}\n", fmt::format("batch {}", each.batch),
               human_bytes(each.bytes), rate_text(each.by_bandwidth), rate_text(each.by_arithmetic),
               rate_text(each.tokens_per_second() / each.batch), each.fits ? "" : "  does not fit in memory");
  }
  fmt::print("{} {}", title("a token"), flops_text(capacity.token_flops));
  if (capacity.prompt_seconds > 0) {
    fmt::print("; a prompt of {} takes at least {:.3g} s", with_commas(demand.context),
               capacity.prompt_seconds);
  }
  fmt::print("\n\n");
}

std::string users_text(uint64_t users) {
  return users >= startup::kManyUsers ? "any number" : with_commas(users);
}

/// In lines that a terminal holds, below a title.
void print_sentence(const char* name, const std::string& text) {
  constexpr size_t kTextWidth = 84;
  std::string line;
  size_t at = 0;
  while (at < text.size()) {
    const size_t space = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, space - at);
    if (!line.empty() && line.size() + 1 + word.size() > kTextWidth) {
      fmt::print("{} {}\n", title(name), line);
      name = "";
      line.clear();
    }
    line += line.empty() ? word : " " + word;
    at = space + 1;
  }
  fmt::print("{} {}\n", title(name), line);
}

void print_users(const startup::CapacityPlan& plan, const startup::Demand& demand,
                 const backend::MachineSpeed& speed) {
  const startup::Users& users = plan.capacity.users;
  fmt::print("{} {} at {:g} tokens/s each: {} by memory, {} by bandwidth, {} by arithmetic\n", title("users"),
             users_text(users.all), demand.user_rate, users_text(users.by_memory),
             speed.bandwidth == 0 ? "?" : users_text(users.by_bandwidth),
             plan.capacity.arithmetic == 0 ? "?" : users_text(users.by_arithmetic));
  const char* name = "with";
  for (const startup::Change& change : plan.changes) {
    fmt::print("{} {:<24} {:>10} {}, by {}; one alone gets {} tokens/s\n", title(name), change.flag,
               users_text(change.users.all), change.users.all == 1 ? "user" : "users",
               startup::kLimitNames[static_cast<size_t>(change.users.limit)], rate_text(change.alone));
    name = "";
  }
  print_sentence("first", plan.advice);
}

double milliseconds(Nanos time) { return static_cast<double>(time) / 1e6; }

void print_fitted(const Foresight& foresight, const startup::Capacity& capacity,
                  const startup::Demand& demand) {
  std::string line;
  for (const startup::Ceiling& each : capacity.ceilings) {
    const backend::StepWork work = startup::decode_work(each.batch, demand.context);
    const Nanos time = foresight.cost.duration(work);
    line += fmt::format("{}batch {} {:.1f} ms, {} tokens/s{}", line.empty() ? "" : "; ", each.batch,
                        milliseconds(time), rate_text(1e9 * each.batch / static_cast<double>(time)),
                        foresight.cost.fitted()->extrapolates(work) ? " (extrapolated)" : "");
  }
  print_sentence("fitted steps", line);
  print_sentence("", terminal_text(sim::cost_text(foresight.cost)));
  if (!foresight.warning.empty()) print_sentence("WARNING", terminal_text(foresight.warning));
}

void print_load(const Foresight& foresight) {
  const PlannedLoad& load = *foresight.load;
  const CarriedLoad& carried = foresight.carried;
  const sim::SimulationReport& report = carried.report;
  const bool none = carried.users.load == 0;
  const auto users = static_cast<uint64_t>(carried.users.load);
  std::string text = fmt::format("{}: {}{} with {} tokens in and {} out", load.slo.text(),
                                 none ? "not one user" : record::plural(users, "user"),
                                 carried.by_memory       ? ", as many as memory holds,"
                                 : carried.users.is_most ? " or more"
                                                         : "",
                                 with_commas(load.prompt), with_commas(load.output));
  if (report.totals.finished > 0) {
    text += fmt::format("; {}{:.3g} requests/s, {} tokens/s, TTFT {:.0f} ms (p99 {:.0f})",
                        none ? "one alone gets " : "", report.per_second(report.totals.finished),
                        rate_text(report.per_second(report.output_tokens)), milliseconds(report.ttft.mean),
                        milliseconds(report.ttft.p99));
  }
  if (report.tpot.any) {
    text += fmt::format(", TPOT {:.1f} ms (p99 {:.1f})", milliseconds(report.tpot.mean),
                        milliseconds(report.tpot.p99));
  }
  print_sentence("within", text);
  if (foresight.cost.fitted() != nullptr && report.extrapolated > 0) {
    print_sentence("", fmt::format("{} of {} steps lie beyond what the cost model was fitted to",
                                   with_commas(report.extrapolated), with_commas(report.totals.steps)));
  } else if (foresight.cost.fitted() == nullptr) {
    print_sentence("", "simulated, steps as the ceilings say and " +
                           fmt::format("{:.3g} ms more each", foresight.cost.roofline()->overhead_s * 1e3));
  }
}

// ---- the command ----

/// The prompt and the answer of each user's sequence.
PlannedLoad load_of(const PlanOptions& options, const startup::Demand& demand) {
  if (demand.context < 2) throw Error("--slo: a context of one token has no prompt and answer");
  const uint32_t output = options.output.value_or(std::max(1U, demand.context / 4));
  if (output >= demand.context) {
    throw Error(
        fmt::format("--output-len: {} of a context of {} tokens leave no prompt", output, demand.context));
  }
  return {.prompt = demand.context - output, .output = output, .slo = sim::Slo::parse(options.slo, "--slo")};
}

/// Whether a machine of that title is the card that the file's device names ("... on NVIDIA A100-SXM4-80GB"
/// is an "NVIDIA A100 SXM 80 GB"): the file's machine is then the one that the card was in.
bool ran_on(std::string_view title, const backend::sim::CostFile& file) {
  constexpr std::string_view kMaker = "NVIDIA ";
  if (!title.starts_with(kMaker)) return false;
  const std::string card = fmt::format(" on {}", title.substr(0, title.find(' ', kMaker.size())));
  const size_t at = file.device.find(card);
  if (at == std::string::npos) return false;
  const size_t end = at + card.size();
  return end == file.device.size() || std::isalnum(static_cast<unsigned char>(file.device[end])) == 0;
}

/// What does not need the machine, so that a fault is found before that is measured.
Foresight foresight_of(const PlanOptions& options, const startup::ModelOutline& model,
                       const startup::Demand& demand) {
  Foresight out;
  if (!options.cost_file.empty()) {
    const backend::sim::CostFile file = backend::sim::read_cost_file(options.cost_file);
    const std::string machine = machine_title(options.machine);
    const backend::sim::CostRun run{.model = startup::model_name(model.path),
                                    .machine = ran_on(machine, file) ? file.cost.machine : machine,
                                    .setup = setup_of(model, options.formats)};
    out.warning = check_cost_file_for(run, file, options.cost_file, options.force);
    if (!out.warning.empty()) log_warning(out.warning);
    out.cost = file.cost;
  }
  if (!options.slo.empty()) out.load = load_of(options, demand);
  return out;
}

int plan(const PlanOptions& options) {
  startup::ModelOutline model = startup::outline_of(options.model);
  set_compute_type(model, options.dtype);
  const std::string_view type = kv_type(model, options.formats);
  startup::Demand demand;
  demand.max_model_len = options.max_model_len > 0 ? options.max_model_len : model.shape.max_positions;
  demand.context = options.context.value_or(std::min(kUsualContext, demand.max_model_len));
  demand.block_size = options.block_size;
  demand.user_rate = options.user_rate;
  Foresight foresight = foresight_of(options, model, demand);
  const startup::ChosenMachine machine = machine_of(options.machine);
  demand.memory = machine.memory;
  demand.embeddings_in_file = machine.embeddings_in_file;
  const startup::CapacityPlan made =
      startup::make_capacity_plan(model, options.formats, machine.speed, demand);
  if (foresight.cost.fitted() == nullptr) {
    backend::sim::RooflineCost roofline = made.capacity.roofline;
    roofline.model = startup::model_name(model.path);
    roofline.machine = machine.title;
    foresight.cost = std::move(roofline);
  }
  if (foresight.load) {
    foresight.carried = carried_load(made.capacity, demand, foresight.cost, *foresight.load);
  }
  if (options.as_json) {
    fmt::print("{}\n", json::serialize(plan_json(made, model, machine, demand, type, foresight)));
    return 0;
  }
  fmt::print("{} {}, {} parameters\n", title("model"), startup::model_name(model.path),
             with_commas(made.capacity.shape.num_parameters));
  print_machine(machine, made.capacity);
  print_memory(made.capacity, type, demand);
  print_allocations(made.capacity, demand);
  print_ceilings(made.capacity, demand);
  if (foresight.cost.fitted() != nullptr) print_fitted(foresight, made.capacity, demand);
  if (foresight.load) print_load(foresight);
  print_users(made, demand, machine.speed);
  return 0;
}

void add_foresight_options(const Flags& command, PlanOptions& options) {
  const char* group = "Foresight";
  const Flag cost =
      command.add_option("--cost", options.cost_file,
                         "A cost model that quire calibrate has fitted: the times of decode steps "
                         "beside the ceilings, and those of --slo");
  cost.group(group).value_name("FILE");
  command
      .add_flag("--force", options.force,
                "Take a --cost of another model, machine or format of weights or K/V")
      .group(group)
      .needs(cost);
  const Flag slo = add_slo_option(command, options.slo);
  slo.group(group);
  command
      .add_option("--output-len", options.output,
                  "Tokens of the context that are the answer, for --slo; default: a quarter")
      .group(group)
      .range(1, INT32_MAX)
      .value_name("N")
      .needs(slo);
}

}  // namespace

void add_plan(const Flags& app, Command& run) {
  auto options = std::make_shared<PlanOptions>();
  const Flags command = app.add_command(
      "plan",
      "What a machine carries of a model, by arithmetic: K/V, users, ceilings, and what to change first");
  command
      .add_option("model", options->model,
                  "Model directory or .gguf file; of a directory config.json is enough")
      .required()
      .value_name("MODEL");
  command
      .add_option("--context", options->context,
                  fmt::format("Tokens of each user's sequence, prompt and answer together; default: {}, or "
                              "the longest if that is less",
                              kUsualContext))
      .range(1, INT32_MAX)
      .value_name("N");
  command
      .add_option("--max-model-len", options->max_model_len,
                  "Length of the longest sequence, which a contiguous allocation reserves for each; "
                  "default: the model's")
      .range(1, INT32_MAX)
      .value_name("N");
  command
      .add_option("--user-rate", options->user_rate,
                  "Tokens per second that each user must get; people read about 5. 0: any")
      .show_default()
      .number_range(0, 1e6)
      .value_name("R");
  command
      .add_option("--quantization", options->formats.quantization,
                  "Weights in memory, as with quire serve --quantization: auto (as in the file), none, "
                  "int8, int4")
      .show_default()
      .value_name("FORMAT");
  add_dtype_option(command, options->dtype);
  add_kv_dtype_option(command, options->formats.kv_cache_dtype);
  command.add_option("--block-size", options->block_size, "Tokens of a K/V block, a multiple of 16")
      .show_default()
      .range(16, 1024)
      .value_name("N");
  add_machine_options(command, options->machine);
  add_foresight_options(command, *options);
  command.add_flag("--json", options->as_json, "Print the figures as one JSON object");
  command.callback([options, &run] { run = [options] { return plan(*options); }; });
}

}  // namespace quire::cli
