// plan: what a machine carries of a model, by arithmetic.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "backend/machine.h"
#include "base/amounts.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/machine_options.h"
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
  startup::NumberFormats formats;
  MachineOptions machine;
  std::optional<uint32_t> context;
  uint32_t max_model_len = 0;
  uint32_t block_size = 16;
  double user_rate = 10;
  bool as_json = false;
};

// ---- as text ----

std::string title(const char* text) {
  return paint(stdout, fmt::format("{:<14}", text), fmt::emphasis::bold);
}

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
  const DType type = startup::pick_kv_dtype(formats.kv_cache_dtype).value_or(model.config.dtype);
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
  constexpr size_t kWidth = 84;
  std::string line;
  size_t at = 0;
  while (at < text.size()) {
    const size_t space = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, space - at);
    if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
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
    fmt::print("{} {:<24} {:>10} users, by {}; one alone gets {} tokens/s\n", title(name), change.flag,
               users_text(change.users.all), startup::kLimitNames[static_cast<size_t>(change.users.limit)],
               rate_text(change.alone));
    name = "";
  }
  print_sentence("first", plan.advice);
}

// ---- as JSON ----

/// null if unknown.
json::value known(double rate) { return rate == 0 ? json::value() : json::value(rate); }

json::object to_json(const startup::Allocation& of) {
  return {{"sequence_bytes", of.bytes}, {"unused_bytes", of.unused}, {"sequences", of.users}};
}

json::object to_json(const startup::Users& users) {
  return {{"users", users.all},
          {"limit", startup::kLimitNames[static_cast<size_t>(users.limit)]},
          {"by_memory", users.by_memory},
          {"by_bandwidth", users.by_bandwidth},
          {"by_arithmetic", users.by_arithmetic}};
}

json::object weights_json(const startup::Capacity& capacity) {
  json::object formats;
  for (const auto& [format, bytes] : capacity.weights.packed) formats[format] = bytes;
  return {{"parameters", capacity.shape.num_parameters},
          {"bytes_by_format", std::move(formats)},
          {"embedding_bytes", capacity.weights.embedding_bytes},
          {"bytes_in_memory", capacity.weight_bytes}};
}

json::object kv_json(const startup::Capacity& capacity, std::string_view type, uint32_t block_size) {
  json::array windows;
  for (const startup::WindowLayers& each : capacity.kv) {
    windows.push_back(
        {{"window", each.window}, {"layers", each.layers}, {"bytes_per_token", each.bytes_per_token}});
  }
  return {{"dtype", type},
          {"bytes_per_token", capacity.shape.kv_bytes_per_token()},
          {"by_window", std::move(windows)},
          {"groups", capacity.shape.kv_windows.size()},
          {"bytes", capacity.kv_bytes},
          {"block_size", block_size},
          {"block_bytes", capacity.block_bytes},
          {"blocks", capacity.blocks},
          {"tokens", capacity.tokens},
          {"longest_sequence", capacity.longest_sequence}};
}

void print_json(const startup::CapacityPlan& plan, const startup::ModelOutline& model,
                const startup::ChosenMachine& machine, const startup::Demand& demand, std::string_view type) {
  const startup::Capacity& capacity = plan.capacity;
  json::object root;
  root["model"] = startup::model_name(model.path);
  root["machine"] = {{"name", machine.name},
                     {"title", machine.title},
                     {"source", machine.source},
                     {"bandwidth_bytes_per_s", known(machine.speed.bandwidth)},
                     {"flops", known(capacity.arithmetic)}};
  root["memory_bytes"] = machine.memory;
  root["context"] = demand.context;
  root["max_model_len"] = demand.max_model_len;
  root["user_rate"] = demand.user_rate;
  root["weights"] = weights_json(capacity);
  root["kv"] = kv_json(capacity, type, demand.block_size);
  root["paged"] = to_json(capacity.paged);
  root["contiguous"] = to_json(capacity.contiguous);
  root["token_flop"] = capacity.token_flops;
  root["prompt_seconds"] = known(capacity.prompt_seconds);
  json::array ceilings;
  for (const startup::Ceiling& each : capacity.ceilings) {
    ceilings.push_back({{"batch", each.batch},
                        {"fits", each.fits},
                        {"step_bytes", each.bytes},
                        {"tokens_per_s_by_bandwidth", known(each.by_bandwidth)},
                        {"tokens_per_s_by_arithmetic", known(each.by_arithmetic)}});
  }
  root["ceilings"] = std::move(ceilings);
  root["capacity"] = to_json(capacity.users);
  json::array changes;
  for (const startup::Change& change : plan.changes) {
    json::object row = to_json(change.users);
    row["flag"] = change.flag;
    row["alone_tokens_per_s"] = known(change.alone);
    changes.push_back(std::move(row));
  }
  root["changes"] = std::move(changes);
  root["advice"] = plan.advice;
  fmt::print("{}\n", json::serialize(root));
}

int plan(const PlanOptions& options) {
  const startup::ModelOutline model = startup::outline_of(options.model);
  const std::string_view type = kv_type(model, options.formats);
  startup::Demand demand;
  demand.max_model_len = options.max_model_len > 0 ? options.max_model_len : model.shape.max_positions;
  demand.context = options.context.value_or(std::min(kUsualContext, demand.max_model_len));
  demand.block_size = options.block_size;
  demand.user_rate = options.user_rate;
  const startup::ChosenMachine machine = machine_of(options.machine);
  demand.memory = machine.memory;
  demand.embeddings_in_file = machine.embeddings_in_file;
  const startup::CapacityPlan made =
      startup::make_capacity_plan(model, options.formats, machine.speed, demand);
  if (options.as_json) {
    print_json(made, model, machine, demand, type);
    return 0;
  }
  fmt::print("{} {}, {} parameters\n", title("model"), startup::model_name(model.path),
             with_commas(made.capacity.shape.num_parameters));
  print_machine(machine, made.capacity);
  print_memory(made.capacity, type, demand);
  print_allocations(made.capacity, demand);
  print_ceilings(made.capacity, demand);
  print_users(made, demand, machine.speed);
  return 0;
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
  add_kv_dtype_option(command, options->formats.kv_cache_dtype);
  command.add_option("--block-size", options->block_size, "Tokens of a K/V block, a multiple of 16")
      .show_default()
      .range(16, 1024)
      .value_name("N");
  add_machine_options(command, options->machine);
  command.add_flag("--json", options->as_json, "Print the figures as one JSON object");
  command.callback([options, &run] { run = [options] { return plan(*options); }; });
}

}  // namespace quire::cli
