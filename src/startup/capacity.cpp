#include "startup/capacity.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>

#include "control/kv/windows.h"

namespace quire::startup {
namespace {

constexpr std::array<uint32_t, 3> kBatches = {1, 8, 64};

/// Tokens that a token at the end of `context` reads back in a layer.
uint64_t tokens_read(uint32_t window, uint64_t context) {
  return window == 0 ? context : std::min<uint64_t>(window, context);
}

/// The layers of a model by their windows, as group_layers sees them.
std::vector<WindowLayers> layers_by_window(const model::ModelConfig& config,
                                           const backend::ModelShape& shape) {
  const uint64_t layer_bytes = shape.kv_bytes_per_token() / shape.num_layers;
  std::map<uint32_t, uint32_t> layers;
  for (const uint32_t window : config.windows) ++layers[window < config.max_positions ? window : 0];
  std::vector<WindowLayers> out;
  for (const auto& [window, count] : layers) out.push_back({window, count, count * layer_bytes});
  return out;
}

/// The rate of a matmul with these weights: that of the format with most bytes.
double arithmetic_rate(const backend::cpu::WeightSizes& weights, const backend::MachineSpeed& speed) {
  const auto most = std::max_element(weights.packed.begin(), weights.packed.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most->first == "f32") return speed.f32;
  if (most->first == "f16") return speed.f16;
  return most->first == "bf16" ? speed.bf16 : speed.integer;
}

/// The work of a decode step, and of a prompt.
class StepWork {
 public:
  StepWork(const model::ModelConfig& config, const Capacity& capacity, const backend::MachineSpeed& speed,
           const Demand& demand)
      : capacity_(capacity), bandwidth_(speed.bandwidth), rate_(capacity.arithmetic) {
    for (const WindowLayers& each : capacity.kv) {
      const uint64_t read = tokens_read(each.window, demand.context);
      kv_bytes_ += read * each.bytes_per_token;
      attention_ += static_cast<double>(read) * each.layers;
    }
    if (config.moe.num_experts > 0) chosen_ = static_cast<double>(config.moe.top) / config.moe.num_experts;
    // q.k and the weighted sum of v: a multiply-add each for every head, element and token read.
    attention_flops_ = 4.0 * capacity.shape.num_heads * capacity.shape.head_dim;
  }

  /// K/V that one sequence of the context holds where no block is shared or half used, and that its next
  /// token reads.
  uint64_t sequence_bytes() const { return kv_bytes_; }
  double token_flops() const {
    return layer_flops() + 2.0 * static_cast<double>(capacity_.weights.head_parameters) +
           attention_flops_ * attention_;
  }
  uint64_t step_bytes(uint64_t batch) const { return weight_bytes(batch) + batch * kv_bytes_; }
  /// 0: unknown.
  double tokens_by_bandwidth(uint64_t batch) const {
    return static_cast<double>(batch) * bandwidth_ / static_cast<double>(step_bytes(batch));
  }
  double tokens_by_arithmetic() const { return rate_ / token_flops(); }
  /// The least time for a prompt of the context, whose head is computed once; 0 if the arithmetic is unknown.
  double prompt_seconds(uint32_t context) const {
    if (rate_ == 0) return 0;
    double read = 0;  // summed over tokens and layers
    for (const WindowLayers& each : capacity_.kv) {
      const auto most = static_cast<double>(tokens_read(each.window, context));
      read += each.layers * (most * (most + 1) / 2 + (context - most) * most);
    }
    const double flops = layer_flops() * context + attention_flops_ * read;
    const double reading = bandwidth_ == 0 ? 0 : static_cast<double>(weight_bytes(context)) / bandwidth_;
    return std::max(flops / rate_, reading);
  }

 private:
  /// Of the experts, those that at least one of `tokens` tokens is sent to if each chooses at random.
  uint64_t weight_bytes(uint64_t tokens) const {
    const auto experts = static_cast<double>(capacity_.weights.expert_bytes);
    const double left_out = std::pow(1 - chosen_, static_cast<double>(tokens)) * experts;
    return capacity_.weights.packed_bytes() - static_cast<uint64_t>(left_out);
  }
  double layer_flops() const {
    return 2 * (static_cast<double>(capacity_.weights.layer_parameters) +
                chosen_ * static_cast<double>(capacity_.weights.expert_parameters));
  }

  const Capacity& capacity_;
  double bandwidth_;
  double rate_;
  double chosen_ = 1;  // the share of a layer's experts that one token uses
  uint64_t kv_bytes_ = 0;
  double attention_ = 0;  // tokens read by one token, summed over the layers
  double attention_flops_ = 0;
};

/// The largest batch, up to kManyUsers, for which `holds` is true; it must hold for all smaller ones too.
uint64_t largest_batch(const std::function<bool(uint64_t)>& holds) {
  uint64_t fits = 0;
  for (uint64_t too_many = kManyUsers + 1; fits + 1 < too_many;) {
    const uint64_t middle = fits + (too_many - fits) / 2;
    (holds(middle) ? fits : too_many) = middle;
  }
  return fits;
}

Users users_of(const Capacity& capacity, const StepWork& work, double rate) {
  const auto within = [&](const std::function<double(uint64_t)>& tokens) {
    return largest_batch([&](uint64_t batch) {
      const double most = tokens(batch);
      return most == 0 || most >= rate * static_cast<double>(batch);
    });
  };
  Users out;
  out.by_memory = std::min(kManyUsers, capacity.paged.users);
  out.by_bandwidth = within([&](uint64_t batch) { return work.tokens_by_bandwidth(batch); });
  out.by_arithmetic = within([&](uint64_t) { return work.tokens_by_arithmetic(); });
  const std::array limits = {out.by_memory, out.by_bandwidth, out.by_arithmetic};
  const auto* const least = std::min_element(limits.begin(), limits.end());
  out.all = *least;
  out.limit = static_cast<Limit>(least - limits.begin());
  return out;
}

Allocation paged_allocation(const Capacity& capacity, const Demand& demand) {
  const std::span<const uint32_t> windows = capacity.shape.kv_windows;
  Allocation out;
  out.bytes = control::blocks_held(windows, demand.context, 1, demand.block_size) * capacity.block_bytes;
  out.users = out.bytes == 0 ? 0 : capacity.blocks * capacity.block_bytes / out.bytes;
  const uint32_t first = (demand.context - 1) / demand.block_size * demand.block_size + 1;
  uint64_t unused = 0;
  for (uint32_t length = first; length < first + demand.block_size; ++length) {
    unused += control::blocks_held(windows, length, 1, demand.block_size) * capacity.block_bytes;
    for (const WindowLayers& each : capacity.kv)
      unused -= tokens_read(each.window, length) * each.bytes_per_token;
  }
  out.unused = unused / demand.block_size;
  return out;
}

/// What the blocks hold in sequences of the context; whole blocks where there is one group without window.
uint64_t tokens_in_blocks(const Capacity& capacity, const Demand& demand) {
  const std::span<const uint32_t> windows = capacity.shape.kv_windows;
  if (windows.size() == 1 && windows[0] == 0) return capacity.blocks * demand.block_size;
  return capacity.paged.users * demand.context;
}

}  // namespace

double Ceiling::tokens_per_second() const {
  if (by_bandwidth == 0 || by_arithmetic == 0) return std::max(by_bandwidth, by_arithmetic);
  return std::min(by_bandwidth, by_arithmetic);
}

Capacity capacity_of(const ModelOutline& model, const NumberFormats& formats,
                     const backend::MachineSpeed& speed, const Demand& demand) {
  Capacity out;
  out.shape = shape_with_kv(model, formats.kv_cache_dtype);
  out.weights = weight_sizes(model, formats.quantization);
  out.weight_bytes = demand.embeddings_in_file ? out.weights.resident_bytes()
                                               : out.weights.packed_bytes() + out.weights.embedding_bytes;
  out.kv_bytes = demand.memory > out.weight_bytes ? demand.memory - out.weight_bytes : 0;
  out.kv = layers_by_window(model.config, out.shape);
  out.block_bytes = out.shape.kv_block_bytes(demand.block_size);
  out.blocks = out.kv_bytes / out.block_bytes;
  out.longest_sequence =
      control::longest_sequence(out.shape.kv_windows, out.blocks, demand.block_size, demand.max_model_len);
  out.paged = paged_allocation(out, demand);
  out.tokens = tokens_in_blocks(out, demand);
  out.arithmetic = arithmetic_rate(out.weights, speed);
  const StepWork work(model.config, out, speed, demand);
  out.contiguous.bytes = demand.max_model_len * out.shape.kv_bytes_per_token();
  out.contiguous.unused = out.contiguous.bytes - work.sequence_bytes();
  out.contiguous.users = out.kv_bytes / out.contiguous.bytes;
  out.token_flops = work.token_flops();
  out.prompt_seconds = work.prompt_seconds(demand.context);
  for (size_t i = 0; i < kBatches.size(); ++i) {
    out.ceilings[i] = {.batch = kBatches[i],
                       .fits = kBatches[i] <= out.paged.users,
                       .bytes = work.step_bytes(kBatches[i]),
                       .by_bandwidth = work.tokens_by_bandwidth(kBatches[i]),
                       .by_arithmetic = work.tokens_by_arithmetic()};
  }
  out.users = users_of(out, work, demand.user_rate);
  return out;
}

}  // namespace quire::startup
