#include "cli/engine_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/policy_options.h"
#include "cli/sim_options.h"

namespace quire::cli {
namespace {

/// "cpu: ...; or sim: ...".
std::string device_help() {
  std::string out;
  for (const startup::Device& device : startup::devices()) {
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; or ", device.name, device.summary);
  }
  return out;
}

/// "{cpu,cuda,...}".
std::string device_names() {
  std::vector<std::string_view> names;
  for (const startup::Device& device : startup::devices()) {
    names.push_back(device.name);
  }
  return fmt::format("{{{}}}", fmt::join(names, ","));
}

std::string device_fault(const std::string& name) {
  try {
    startup::find_device(name);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

void add_model_options(const Flags& command, startup::ModelOptions& options) {
  command.add_option("model", options.model, "Model: a Hugging Face directory or a .gguf file")
      .required()
      .value_name("MODEL");
  add_dtype_option(command, options.dtype);
  command
      .add_option("--quantization", options.quantization,
                  "Weights: auto (a GGUF file's Q8_0, Q4_0, Q4_K and Q6_K as they are, all others in the "
                  "compute type), none (all in the compute type), int8 or int4; with these two, activations "
                  "are int8. With --device cuda, auto is none, and activations are in --dtype")
      .show_default()
      .value_name("FORMAT");
  command
      .add_option("--threads", options.threads, "Compute threads; 0: one per CPU that this process may use")
      .show_default()
      .range(0, 1024)
      .value_name("N");
  command
      .add_option("--isa", options.isa,
                  "Instruction-set level of the kernels: auto, reference, avx2, avx2-vnni, avx512, "
                  "avx512-vnni, avx512-bf16, amx")
      .show_default()
      .value_name("LEVEL");
  command
      .add_option(
          "--sliding-window", options.sliding_window,
          "Limit attention to the last N tokens, and free the blocks behind them; a model that was not "
          "trained with this window gives other answers beyond N tokens. 0: the model's own window")
      .show_default()
      .range(0, INT32_MAX)
      .value_name("N");
  command
      .add_option_function(
          "--pack-cache", [&options](const std::string& dir) { options.pack_cache = dir; },
          "Keep the packed weights in a file, in DIR or beside the model, so that the next start need not "
          "pack them; other users must not be able to write there")
      .optional_value()
      .value_name("[DIR]");
  command.add_flag("--no-mmap", options.no_mmap,
                   "Copy the model's files into memory instead of mapping them: takes more memory and time "
                   "at the start, but later changes to the files do no harm");
}

Flag add_dtype_option(const Flags& command, std::string& name) {
  return command.add_option("--dtype", name, "Compute type: auto (the checkpoint's), f32, f16, bf16")
      .show_default()
      .value_name("TYPE");
}

Flag add_kv_dtype_option(const Flags& command, std::string& name) {
  return command
      .add_option("--kv-cache-dtype", name, "Type of K/V: auto (the compute type), f32, f16, bf16, int8")
      .show_default()
      .value_name("TYPE");
}

void add_single_engine_options(const Flags& command, startup::EngineOptions& options) {
  add_model_options(command, options.model);
  const char* group = kMemoryGroup;
  const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return command.add_option(name, value, help).group(group).value_name(type);
  };
  add("--max-model-len", options.max_model_len,
      "Most tokens of a sequence, prompt and answer together; default: the model's limit", "N")
      .range(1, INT32_MAX);
  add("--max-num-batched-tokens", options.max_num_batched_tokens,
      "Token budget of a step; auto: prompts get as many tokens as take 0.24 s", "N")
      .show_default();
  add("--block-size", options.block_size, "Tokens of a K/V block, a multiple of 16", "N")
      .show_default()
      .range(16, 1024);
  const Flag blocks = add("--num-blocks,--num-gpu-blocks-override", options.num_blocks,
                          "Number of K/V blocks, instead of --kv-cache-memory", "N")
                          .range(1, INT32_MAX);
  add("--kv-cache-memory,--kv-cache-memory-bytes", options.kv_cache_memory,
      "Memory for K/V (1GiB, 512MiB, ...); default: half of the free memory", "SIZE")
      .excludes(blocks);
  add_kv_dtype_option(command, options.kv_cache_dtype).group(group);
  command
      .add_flag("!--no-enable-prefix-caching,--enable-prefix-caching", options.enable_prefix_caching,
                "Share the K/V of equal prefixes between requests (on by default)")
      .group(group);
  add("--prefix-cache-file", options.prefix_cache_file,
      "Load the prefix cache from this file at the start, and save it there at the end; it holds prompts and "
      "answers, and only its owner may read it",
      "FILE");
  add("--step-trace", options.step_trace, "Write one JSON line per step: numbers, no prompts", "FILE");
  const Flag log =
      add("--step-log", options.step_log,
          "Write what each step had to do and how long its parts took, for quire calibrate: numbers, no "
          "prompts",
          "FILE");
  add("--step-log-max", options.step_log_max, "Most bytes of the step log; the newest half is kept", "SIZE")
      .show_default()
      .needs(log);
  add("--decision-log", options.decision_log,
      "Record every decision of the scheduler and its inputs, for quire explain. The log holds "
      "prompts and answers, and only its owner may read it",
      "FILE");
}

Flag add_log_limit_option(const Flags& command, std::string& limit) {
  return command
      .add_option(
          "--decision-log-max", limit,
          "Write the decision log in parts (FILE.1, FILE.2, ..., FILE), and delete the oldest when all "
          "together exceed this size (64MiB, 2GiB, ...); default: no limit. A part can begin only while "
          "no request runs or waits")
      .value_name("SIZE")
      .needs(command.find("--decision-log"));
}

void add_engine_options(const Flags& command, startup::EngineOptions& options) {
  add_single_engine_options(command, options);
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command.add_option(name, value, help).group(kMemoryGroup).value_name("N");
  };
  add("--max-num-seqs", options.max_num_seqs, "Sequences that run at once").show_default().range(1, 65536);
  add("--max-waiting", options.max_waiting,
      fmt::format("Sequences that may wait; more are refused (default {})",
                  options.default_max_waiting == UINT32_MAX ? "all may"
                                                            : std::to_string(options.default_max_waiting)))
      .range(0, INT32_MAX);
  add_policy_options(command, options.policies);
}

void add_device_options(const Flags& command, startup::EngineOptions& options) {
  command
      .add_option_function(
          "--device",
          [&options](const std::string& name) {
            const startup::DeviceChoice choice = startup::find_device(name);
            options.device = choice.device;
            options.device_index = choice.index;
          },
          device_help())
      .value_name("DEVICE")
      .show_default(std::string(options.device->name))
      .check(device_fault, device_names());
  command
      .add_option("--gpu-memory-utilization", options.gpu_memory_utilization,
                  "How much of a GPU's memory may be taken, for weights, K/V and all else (default 0.9)")
      .value_name("X")
      .number_range(0.01, 1.0);
  command.add_flag("--fast-gemm", options.fast_gemm,
                   "On a GPU, the fastest matrix products; an answer may then depend on the batch");
  add_cost_options(command, options.cost);
  command
      .add_flag("--force", options.cost.force,
                "Take a cost model of another model, machine, number format, kernels or number of threads, "
                "with a warning in all that is written")
      .group(kSimGroup);
  command.add_option("--sim-speed", options.sim_speed, "The simulated device is X times as fast")
      .group(kSimGroup)
      .value_name("X")
      .show_default()
      .number_range(0.01, 10000.0);
}

}  // namespace quire::cli
