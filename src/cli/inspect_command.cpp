// inspect: what a model is and what fits in memory, from its config and the heads of its weight files.
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/amounts.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/machine_options.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "formats/gguf_names.h"
#include "model/config_keys.h"
#include "model/families.h"
#include "startup/capacity.h"
#include "startup/cuda_memory.h"
#include "startup/model_files.h"
#include "startup/model_options.h"
#include "startup/model_outline.h"

namespace quire::cli {
namespace {

struct InspectOptions {
  std::string model;
  std::string memory_size;
  std::optional<uint64_t> memory;  // of that, if it is given
  std::string kv_cache_dtype = "auto";
  std::string quantization = "auto";
  uint32_t max_model_len = 0;
  bool list_families = false;
  std::string device = "cpu";
  uint32_t max_num_seqs = startup::EngineOptions{}.max_num_seqs;
  std::string max_num_batched_tokens = "auto";
};

/// "22 of 26 layers see only 1,024 tokens", one line a window.
void print_windows(const std::string& title, const model::ModelConfig& config) {
  std::map<uint32_t, uint32_t> layers;
  for (const uint32_t window : config.windows) {
    if (window > 0) ++layers[window];
  }
  for (const auto& [window, count] : layers) {
    fmt::print("{} {} of {} layers see only {} tokens\n", title, count, config.num_layers,
               with_commas(window));
  }
}

/// "default, tool_use", and what is wrong with those that do not parse.
std::string list_of(const chat::ChatTemplates& templates) {
  if (templates.empty()) return "none";
  std::string out = fmt::format("{}", fmt::join(templates.names(), ", "));
  for (const std::string& fault : templates.faults()) out += fmt::format("; broken: {}", fault);
  return out;
}

void print_list(std::string_view title, std::span<const std::string_view> words) {
  std::string line = fmt::format("  {:<9}", title);
  for (const std::string_view word : words) {
    if (line.size() + word.size() > 100) {
      fmt::print("{}\n", line);
      line.assign(11, ' ');
    }
    line += fmt::format(" {}", word);
  }
  fmt::print("{}\n", line);
}

/// All families, the keys of config.json that change their numbers, and their names in GGUF files.
int list_families() {
  for (const model::Family& family : model::families()) {
    fmt::print("{} ({})\n", paint(stdout, std::string(family.architecture), fmt::emphasis::bold),
               family.model_type);
    print_list("keys", family.keys);
    if (const formats::GgufFamily* gguf = formats::find_gguf_family(family.architecture)) {
      print_list("GGUF", std::span(&gguf->arch, 1));
    }
  }
  fmt::print("{}\n", paint(stdout, "all", fmt::emphasis::bold));
  print_list("keys", model::keys_of_all_families());
  return 0;
}

void print_shape(const model::ModelConfig& config, const backend::ModelShape& shape) {
  fmt::print("{} {} ({})\n", title("architecture"), config.architecture, config.model_type);
  fmt::print("{} {} layers, width {}, {} query and {} K/V heads of {}, feed-forward {}\n", title("shape"),
             shape.num_layers, shape.hidden_size, shape.num_heads, shape.num_kv_heads, shape.head_dim,
             shape.ffn_size);
  if (config.moe.num_experts > 0) {
    fmt::print("{} {} of {} for a token, feed-forward {} each\n", title("experts"), config.moe.top,
               config.moe.num_experts, config.moe.ffn_size);
  }
  print_windows(title("attention"), config);
  fmt::print("{} {} tokens{}\n", title("vocabulary"), with_commas(shape.vocab_size),
             config.tie_embeddings ? ", head tied to the embeddings" : "");
}

/// How many sequences of so many tokens fit beside the weights.
void print_fit(const InspectOptions& options, const startup::ModelOutline& model, uint32_t length) {
  const uint64_t memory = options.memory ? *options.memory : free_memory();
  const startup::Capacity capacity =
      startup::capacity_of(model, {options.quantization, options.kv_cache_dtype}, {},
                           {.memory = memory, .context = length, .max_model_len = length});
  fmt::print("{} {} bytes a token, {} a sequence of {}\n", title("K/V"),
             with_commas(capacity.shape.kv_bytes_per_token()), human_bytes(capacity.paged.bytes),
             with_commas(length));
  const std::string where = human_bytes(memory) + (options.memory ? "" : ", what is free here");
  if (capacity.kv_bytes == 0) {
    fmt::print("{} {} cannot hold the weights\n", title("fits"), where);
    return;
  }
  const std::string users =
      fmt::format("{} sequences of {}", with_commas(capacity.paged.users), with_commas(length));
  if (capacity.shape.kv_windows == std::vector<uint32_t>{0}) {
    fmt::print("{} in {}: the weights and {} tokens, so {}\n", title("fits"), where,
               with_commas(capacity.tokens), users);
  } else {
    fmt::print("{} in {}: the weights and {}\n", title("fits"), where, users);
  }
}

/// What an engine with these options takes of a GPU, and where in its memory a step keeps what.
void print_cuda(const InspectOptions& options, const model::ModelConfig& config) {
  startup::EngineOptions engine;
  engine.model.quantization = options.quantization;
  engine.kv_cache_dtype = options.kv_cache_dtype;
  engine.max_model_len = options.max_model_len;
  engine.max_num_seqs = options.max_num_seqs;
  engine.max_num_batched_tokens = options.max_num_batched_tokens;
  const startup::CudaMemory memory = startup::cuda_memory(engine, config);
  const std::string_view dtype = dtype_name(memory.dtype);
  fmt::print(
      "{} {} on the device as {}{}\n", title("weights"), human_bytes(memory.weight_bytes),
      memory.quantization ? fmt::format("{}, embeddings as ", weight_format_name(*memory.quantization)) : "",
      dtype);
  fmt::print("{} {} bytes a token as {}\n", title("K/V"), with_commas(memory.kv_bytes_per_token), dtype);
  fmt::print("{} {} for matrix products\n", title("workspace"), human_bytes(memory.workspace_bytes));
  const std::string sampling = memory.sampling_bytes > 0 ? human_bytes(memory.sampling_bytes) : "none";
  fmt::print("{} {} to choose the tokens of {} sequences{}\n", title("sampling"), sampling,
             with_commas(memory.limits.seqs),
             memory.sampling_bytes > 0 ? "" : ": with so large a vocabulary the host does");
  fmt::print("{} {} for a step of {} tokens in {} sequences of up to {}; if no buffers shared bytes, {}\n",
             title("activations"), human_bytes(memory.activation_bytes), with_commas(memory.limits.rows),
             with_commas(memory.limits.seqs), with_commas(memory.limits.positions),
             human_bytes(memory.unshared_bytes));
  fmt::print("{} {} of all this but K/V; if no buffers shared bytes, {}\n", title("peak"),
             human_bytes(memory.peak_bytes()),
             human_bytes(memory.peak_bytes() - memory.activation_bytes + memory.unshared_bytes));
  TextTable table{.head = {"buffer", "lives", "bytes", "offset"}, .rows = {}};
  for (const startup::CudaBuffer& buffer : memory.buffers) {
    table.rows.push_back({buffer.name, buffer.lives, with_commas(buffer.bytes), with_commas(buffer.offset)});
  }
  fmt::print("\n{}", table.text(2));
}

int inspect(const InspectOptions& options) {
  if (options.list_families) return list_families();
  std::optional<WeightFormat> format = startup::pick_quantization(options.quantization);
  const startup::ModelOutline model = startup::outline_of(options.model);
  if (options.quantization == "none") format = weight_format_of(model.config.dtype);
  const backend::ModelShape shape = startup::shape_with_kv(model, options.kv_cache_dtype);
  const uint32_t length = options.max_model_len > 0 ? options.max_model_len : shape.max_positions;
  if (length > shape.max_positions) {
    throw Error(fmt::format("--max-model-len: {} is more than the {} positions of the model", length,
                            shape.max_positions));
  }
  fmt::print("{} {}\n", title("model"), startup::model_name(model.path));
  print_shape(model.config, shape);
  fmt::print("{} {}\n", title("templates"), list_of(startup::find_chat_templates(model.path, {})));
  fmt::print("{} {} tokens\n", title("context"), with_commas(shape.max_positions));
  fmt::print("{} {} ({} as {})\n", title("parameters"), with_commas(shape.num_parameters),
             human_bytes(shape.weight_bytes), startup::stored_formats(model));
  if (model.absent)
    fmt::print("{} absent: {}; all of this is from config.json\n", title("weights"), *model.absent);
  if (options.device == "cuda") {
    print_cuda(options, model.config);
    return 0;
  }
  if (format) {
    const backend::cpu::WeightSizes sizes = startup::weight_sizes(model, options.quantization);
    fmt::print("{} {} in memory as {}{}\n", title("quantization"), human_bytes(sizes.resident_bytes()),
               weight_format_name(*format),
               sizes.embedding_in_file ? "; the embeddings stay in their file" : ", with the embeddings");
  }
  print_fit(options, model, length);
  return 0;
}

}  // namespace

void add_inspect(const Flags& app, Command& run) {
  auto options = std::make_shared<InspectOptions>();
  const Flags command = app.add_command(
      "inspect", "Shape, parameters and memory of a model; neither loads nor needs its weights");
  command
      .add_option("model", options->model,
                  "Model directory or .gguf file; of a directory config.json is enough")
      .value_name("MODEL");
  command.add_flag("--families", options->list_families,
                   "List the model families and the keys of config.json that they use");
  command
      .add_option("--memory", options->memory_size,
                  "Memory for the weights and K/V; default: the free memory of this machine")
      .value_name("SIZE");
  command.add_option("--max-model-len", options->max_model_len, "Length of a sequence; default: the model's")
      .range(1, INT32_MAX)
      .value_name("N");
  command
      .add_option(
          "--quantization", options->quantization,
          "Weights in memory, as with quire serve --quantization: auto (as in the file), none, int8, int4")
      .show_default()
      .value_name("FORMAT");
  add_kv_dtype_option(command, options->kv_cache_dtype);
  command
      .add_option("--device", options->device,
                  "cuda: what an NVIDIA GPU holds beside K/V, buffer by buffer; no GPU need be here")
      .show_default()
      .one_of({"cpu", "cuda"});
  command
      .add_option("--max-num-seqs", options->max_num_seqs,
                  "With --device cuda, sequences that run at once, as of quire serve")
      .show_default()
      .range(1, 65536)
      .value_name("N");
  command
      .add_option("--max-num-batched-tokens", options->max_num_batched_tokens,
                  "With --device cuda, the most tokens of a step, as of quire serve")
      .show_default()
      .value_name("N");
  command.callback([options, command, &run] {
    if (!options->list_families && options->model.empty()) {
      throw Error("inspect: MODEL is missing (or --families); quire inspect --help says more");
    }
    for (const char* flag : {"--memory", "--max-model-len", "--quantization", "--kv-cache-dtype", "--device",
                             "--max-num-seqs", "--max-num-batched-tokens"}) {
      if (options->list_families) refuse_if_given(command, flag, "with --families, which needs no model");
    }
    if (options->list_families && !options->model.empty()) {
      throw Error("inspect: --families is of no model; quire inspect MODEL says which family one is of");
    }
    if (!options->memory_size.empty()) options->memory = parse_bytes(options->memory_size, "--memory");
    if (options->device == "cuda") {
      refuse_if_given(command, "--memory", "with --device cuda, which asks what is needed, not what fits");
    } else {
      refuse_if_given(command, "--max-num-seqs", "without --device cuda");
      refuse_if_given(command, "--max-num-batched-tokens", "without --device cuda");
    }
    run = [options] { return inspect(*options); };
  });
}

}  // namespace quire::cli
