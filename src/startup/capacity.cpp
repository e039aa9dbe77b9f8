#include "startup/capacity.h"

#include <algorithm>
#include <functional>
#include <span>

#include "control/kv/windows.h"
#include "startup/roofline.h"

namespace quire::startup {
namespace {

constexpr std::array<uint32_t, 3> kBatches = {1, 8, 64};

/// Tokens that a token at the end of `context` reads back in a layer.
uint64_t tokens_read(uint32_t window, uint64_t context) {
  return window == 0 ? context : std::min<uint64_t>(window, context);
}

/// The ceilings of decode steps and of a prompt, which are a roofline's without the overhead of a step.
class Ceilings {
 public:
  Ceilings(const backend::sim::RooflineCost& roofline, uint32_t context)
      : roofline_(roofline), context_(context) {}

  double token_flops() const { return ops(decode_work(1, context_)); }
  uint64_t step_bytes(uint64_t batch) const {
    return static_cast<uint64_t>(bytes(decode_work(batch, context_)));
  }
  /// 0: unknown.
  double tokens_by_bandwidth(uint64_t batch) const {
    return static_cast<double>(batch) * roofline_.bandwidth / static_cast<double>(step_bytes(batch));
  }
  double tokens_by_arithmetic() const { return roofline_.rate / token_flops(); }
  /// The least time for a prompt of the context, whose one row of logits hardly counts; 0 if the arithmetic
  /// is unknown.
  double prompt_seconds() const {
    if (roofline_.rate == 0) return 0;
    const uint64_t tokens = context_;
    const backend::StepWork prompt{.chunks = 1, .prefill_tokens = tokens, .chunk_squares = tokens * tokens};
    const double reading = roofline_.bandwidth == 0 ? 0 : bytes(prompt) / roofline_.bandwidth;
    return std::max(ops(prompt) / roofline_.rate, reading);
  }

 private:
  double bytes(const backend::StepWork& work) const {
    return roofline_.bytes(work, roofline_.attention_of(work));
  }
  double ops(const backend::StepWork& work) const {
    return roofline_.ops(work, roofline_.attention_of(work));
  }

  const backend::sim::RooflineCost& roofline_;
  uint32_t context_;
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

Users users_of(const Capacity& capacity, const Ceilings& ceilings, double rate) {
  const auto within = [&](const std::function<double(uint64_t)>& tokens) {
    return largest_batch([&](uint64_t batch) {
      const double most = tokens(batch);
      return most == 0 || most >= rate * static_cast<double>(batch);
    });
  };
  Users out;
  out.by_memory = std::min(kManyUsers, capacity.paged.users);
  out.by_bandwidth = within([&](uint64_t batch) { return ceilings.tokens_by_bandwidth(batch); });
  out.by_arithmetic = within([&](uint64_t) { return ceilings.tokens_by_arithmetic(); });
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

uint64_t most_kv_bytes(const backend::ModelShape& shape, uint32_t block_size, uint32_t max_num_seqs,
                       uint32_t longest, uint32_t chunk) {
  const auto held = [&](uint64_t tokens) {
    return control::blocks_held(shape.kv_windows, longest, tokens, block_size);
  };
  return (held(1) * (max_num_seqs - 1) + held(chunk)) * shape.kv_block_bytes(block_size);
}

backend::StepWork decode_work(uint64_t batch, uint32_t context) {
  return backend::decode_work_of(batch, batch * (context - 1));
}

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
  out.roofline = roofline_of(model.config, out.shape, out.weights, speed, demand.block_size);
  for (const backend::sim::AttentionCost& each : out.roofline.attention) {
    out.kv.push_back({each.window, each.layers, each.layers * each.token_bytes});
  }
  out.block_bytes = out.shape.kv_block_bytes(demand.block_size);
  out.blocks = out.kv_bytes / out.block_bytes;
  out.longest_sequence =
      control::longest_sequence(out.shape.kv_windows, out.blocks, demand.block_size, demand.max_model_len);
  out.paged = paged_allocation(out, demand);
  out.tokens = tokens_in_blocks(out, demand);
  out.arithmetic = out.roofline.rate;
  const Ceilings ceilings(out.roofline, demand.context);
  out.contiguous.bytes = demand.max_model_len * out.shape.kv_bytes_per_token();
  out.contiguous.unused = out.contiguous.bytes;
  for (const WindowLayers& each : out.kv) {
    out.contiguous.unused -= tokens_read(each.window, demand.context) * each.bytes_per_token;
  }
  out.contiguous.users = out.kv_bytes / out.contiguous.bytes;
  out.token_flops = ceilings.token_flops();
  out.prompt_seconds = ceilings.prompt_seconds();
  for (size_t i = 0; i < kBatches.size(); ++i) {
    out.ceilings[i] = {.batch = kBatches[i],
                       .fits = kBatches[i] <= out.paged.users,
                       .bytes = ceilings.step_bytes(kBatches[i]),
                       .by_bandwidth = ceilings.tokens_by_bandwidth(kBatches[i]),
                       .by_arithmetic = ceilings.tokens_by_arithmetic()};
  }
  out.users = users_of(out, ceilings, demand.user_rate);
  return out;
}

}  // namespace quire::startup
