#include "startup/devices.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/inspect.h"
#include "backend/sim/sim_backend.h"
#include "base/error.h"
#include "base/log.h"
#include "startup/cuda_device.h"
#include "startup/engine_options.h"
#include "startup/simulated_machine.h"

namespace quire::startup {
namespace {

std::unique_ptr<backend::Backend> make_cpu(const EngineOptions& options, const model::ModelConfig& config,
                                           const tokenize::Tokenizer&) {
  const std::optional<DType> kv_dtype = pick_kv_dtype(options.kv_cache_dtype, config.head_dim);
  return std::make_unique<backend::cpu::CpuBackend>(load_model(options.model, config, options.max_model_len),
                                                    kv_dtype);
}

/// With what the options change of the config.
SimulatedMachine machine_of(const EngineOptions& options, const model::ModelConfig& config) {
  ModelOutline outline = outline_of(options.model.model);
  set_compute_type(outline, options.model.dtype);
  outline.config.windows = config.windows;
  const backend::ModelShape from_config = backend::cpu::model_shape(config, config.dtype);
  outline.shape.kv_windows = from_config.kv_windows;
  outline.shape.kv_layers = from_config.kv_layers;
  return simulated_machine(outline, {options.model.quantization, options.kv_cache_dtype},
                           with_efficiency(*options.cost.machine, options.cost.efficiency),
                           options.block_size);
}

std::unique_ptr<backend::Backend> make_sim(const EngineOptions& options, const model::ModelConfig& config,
                                           const tokenize::Tokenizer& tokenizer) {
  const std::optional<uint64_t> jitter =
      options.cost.jitter ? std::optional(options.cost.jitter_seed.value_or(0)) : std::nullopt;
  backend::sim::SimTokens tokens = {.vocab_size = config.vocab_size,
                                    .sayable = sayable_tokens(tokenizer, config.vocab_size),
                                    .jitter = jitter,
                                    .check_kv = options.cost.check_kv};
  const auto make = [&](backend::ModelShape shape, const backend::sim::CostModel& cost, uint64_t kv_bytes) {
    return std::make_unique<backend::sim::SimBackend>(std::move(shape), cost, std::move(tokens),
                                                      options.cost.steps_in_flight.value_or(1),
                                                      options.sim_speed, kv_bytes);
  };
  if (options.cost.machine) {
    SimulatedMachine machine = machine_of(options, config);
    return make(std::move(machine.shape), machine.cost, machine.kv_bytes);
  }
  const DType dtype = pick_dtype(options.model.dtype).value_or(config.dtype);
  const DType kv_dtype = pick_kv_dtype(options.kv_cache_dtype, config.head_dim).value_or(dtype);
  return make(backend::cpu::model_shape(config, kv_dtype), options.cost.model(), UINT64_MAX);
}

std::unique_ptr<backend::Backend> make_gpu(const EngineOptions& options, const model::ModelConfig& config,
                                           const tokenize::Tokenizer&) {
  return make_cuda(options, config);
}

std::unique_ptr<backend::Backend> make_what_there_is(const EngineOptions& options,
                                                     const model::ModelConfig& config,
                                                     const tokenize::Tokenizer& tokenizer) {
  const std::string why = why_no_cuda(0);
  if (why.empty()) return make_cuda(options, config);
  log_info(fmt::format("--device auto: the CPU, since {}", why));
  return make_cpu(options, config, tokenizer);
}

constexpr Device kDevices[] = {
    {.name = "cpu", .summary = "the processors of this machine", .make = make_cpu},
    {.name = "cuda",
     .summary = "an NVIDIA GPU (cuda:N for the N-th)",
     .make = make_gpu,
     .has_several = true,
     .may_be_gpu = true},
    {.name = "auto",
     .summary = "a GPU if there is one, else the CPU",
     .make = make_what_there_is,
     .may_be_gpu = true},
    {.name = "sim",
     .summary = "reads no weights; answers are arbitrary words at the speed set below",
     .is_simulated = true,
     .make = make_sim},
};

}  // namespace

std::span<const Device> devices() { return kDevices; }

const Device& default_device() { return kDevices[0]; }

DeviceChoice find_device(std::string_view name) {
  const size_t colon = std::min(name.find(':'), name.size());
  const auto* found = std::ranges::find(kDevices, name.substr(0, colon), &Device::name);
  if (found == std::end(kDevices)) {
    std::vector<std::string_view> names;
    for (const Device& device : kDevices) names.push_back(device.name);
    throw Error(fmt::format("'{}' is not one of {}", name, fmt::join(names, ", ")));
  }
  DeviceChoice choice{found, 0};
  if (colon == name.size()) return choice;
  const std::string_view number = name.substr(colon + 1);
  const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), choice.index);
  if (!found->has_several || failed != std::errc() || end != number.data() + number.size()) {
    throw Error(fmt::format(
        "'{}': {}, as in cuda:1", name,
        found->has_several ? "what follows is not the number of a device" : "only cuda may have a number"));
  }
  return choice;
}

}  // namespace quire::startup
