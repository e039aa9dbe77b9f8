#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kv_cache.h"
#include "backend/cuda/weights.h"
#include "base/amounts.h"
#include "decoder/forward_pass.h"
#include "model/kv_groups.h"
#include "tests/device/device.h"
#include "tests/device/measure.h"
#include "tests/device/measure_model.h"

namespace quire::test::gpu {
namespace {

namespace cuda = backend::cuda;

size_t layer_elements(const model::ModelConfig& config) {
  const size_t q = size_t{config.num_heads} * config.head_dim;
  const size_t qkv = q + size_t{2} * config.num_kv_heads * config.head_dim;
  return config.hidden_size * (qkv + q + size_t{3} * config.ffn_size);
}

}  // namespace

cuda::ModelWeights random_weights(const model::ModelConfig& config) {
  const uint32_t hidden = config.hidden_size;
  const uint32_t q = config.num_heads * config.head_dim;
  const size_t embedding = size_t{config.vocab_size} * hidden;
  const size_t norm = size_t{hidden} * sizeof(float) / kBf16Bytes;
  cuda::ModelWeights out;
  out.memory = random_bf16(embedding + config.num_layers * layer_elements(config) + norm, "the weights");
  std::byte* next = out.memory.data();
  const auto take = [&next](size_t elements) {
    std::byte* const at = next;
    next += elements * kBf16Bytes;
    return at;
  };
  const auto matrix = [&take](uint32_t n, uint32_t k) {
    return cuda::Matrix{.data = take(size_t{n} * k), .bias = nullptr, .n = n, .k = k};
  };
  const std::vector<float> ones(hidden, 1.0F);
  std::byte* const norms = take(norm);
  cuda::copy_to_device(norms, ones.data(), hidden * sizeof(float), nullptr);
  cuda::synchronize(nullptr);
  out.final_norm = reinterpret_cast<const float*>(norms);
  out.head = matrix(config.vocab_size, hidden);
  out.embedding = out.head.data;
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    cuda::LayerWeights layer;
    layer.attention_norm = out.final_norm;
    layer.ffn_norm = out.final_norm;
    layer.qkv = matrix(q + 2 * config.num_kv_heads * config.head_dim, hidden);
    layer.o = matrix(hidden, q);
    layer.gate_up = matrix(2 * config.ffn_size, hidden);
    layer.down = matrix(hidden, config.ffn_size);
    out.layers.push_back(layer);
  }
  return out;
}

namespace {

cuda::StepLimits limits_of(const Step& step) {
  return {
      .rows = step.seqs * step.tokens, .seqs = step.seqs, .positions = step.length, .logit_rows = step.seqs};
}

class Steps {
 public:
  Steps(const model::ModelConfig& config, const cuda::ModelWeights& weights, cuda::Gemm& gemm,
        const Step& step, cuda::Stream stream)
      : step_(step),
        stream_(stream),
        blocks_of_each_((step.length + kBlock - 1) / kBlock),
        cache_(config, DType::kBF16, step.seqs * blocks_of_each_, kBlock),
        ops_(config, weights, cache_, gemm, stream, limits_of(step)),
        pass_(config, DType::kBF16, step.length) {
    cuda::clear(cache_.memory().data(), cache_.memory().size(), stream);
    tables_.reserve(step.seqs);
    for (uint32_t i = 0; i < step.seqs; ++i) {
      tables_.push_back(model::consecutive_tables(cache_.num_groups(), blocks_of_each_,
                                                  static_cast<BlockId>(i * blocks_of_each_)));
      seqs_.push_back({step.tokens, step.length - step.tokens, tables_.back(), 1});
    }
    for (uint32_t i = 0; i < step.seqs * step.tokens; ++i) {
      tokens_.push_back(static_cast<TokenId>(i * 7919 % config.vocab_size));
    }
  }

  void compute() {
    pass_.compute(ops_, {cache_.groups(), cache_.num_blocks(), kBlock}, tokens_, seqs_);
    cuda::synchronize(stream_);
  }
  void compute_logits() {
    pass_.compute(ops_, {cache_.groups(), cache_.num_blocks(), kBlock}, tokens_, seqs_);
    pass_.logits(ops_, pass_.logit_rows());
  }

 private:
  Step step_;
  cuda::Stream stream_;
  uint32_t blocks_of_each_;
  cuda::KvCache cache_;
  cuda::CudaOps ops_;
  decoder::ForwardPass pass_;
  std::vector<std::vector<std::vector<BlockId>>> tables_;
  std::vector<decoder::BatchSeq> seqs_;
  std::vector<TokenId> tokens_;
};

/// What a step takes beside the weights.
size_t memory_of(const model::ModelConfig& config, const Step& step) {
  const size_t blocks = size_t{step.seqs} * ((step.length + kBlock - 1) / kBlock);
  const cuda::KvBlocks one{DType::kBF16, kBlock, config.num_kv_heads, config.head_dim};
  return blocks * one.block_bytes() * config.num_layers +
         cuda::CudaOps::bytes_for(config, DType::kBF16, kBlock, limits_of(step));
}

/// On a stream of its own, where decodes are repeated as a graph.
double seconds_as_a_graph(const model::ModelConfig& config, const cuda::ModelWeights& weights,
                          const Step& step) {
  const cuda::OwnStream stream;
  cuda::Gemm gemm(cublaslt(), stream.get());
  cuda::CudaOps::prepare(gemm, weights, limits_of(step));
  Steps steps(config, weights, gemm, step, stream.get());
  return seconds_of_waiting([&] { steps.compute(); });
}

}  // namespace

Needs needs_of_layers(const model::ModelConfig& config, const Step& step) {
  const double elements = static_cast<double>(config.num_layers * layer_elements(config));
  const double kv_width = 2.0 * config.num_kv_heads * config.head_dim;
  const double before = step.length - step.tokens;
  const double pairs = step.tokens * before + 0.5 * step.tokens * (step.tokens + 1.0);
  return {.bytes = kBf16Bytes * (elements + config.num_layers * kv_width * step.seqs * step.length),
          .operations = step.seqs * (2.0 * step.tokens * elements +
                                     4.0 * pairs * config.num_layers * config.num_heads * config.head_dim)};
}

Needs needs_of_step(const model::ModelConfig& config, const Step& step) {
  const Needs layers = needs_of_layers(config, step);
  const double head = static_cast<double>(config.vocab_size) * config.hidden_size;
  return {.bytes = layers.bytes + head * kBf16Bytes,
          .operations = layers.operations + 2.0 * step.seqs * head};
}

model::ModelConfig llama_1b() {
  model::ModelConfig out;
  out.architecture = "LlamaForCausalLM";
  out.model_type = "llama";
  out.vocab_size = 128'256;
  out.hidden_size = 2048;
  out.num_layers = 16;
  out.num_heads = 32;
  out.num_kv_heads = 8;
  out.head_dim = 64;
  out.ffn_size = 8192;
  out.max_positions = 131'072;
  out.rms_norm_eps = 1e-5;
  out.rope.theta = 500'000;
  out.tie_embeddings = true;
  out.windows.assign(out.num_layers, 0);
  out.dtype = DType::kBF16;
  return out;
}

void measure_steps(const Sizes& sizes, const Ceilings& ceilings) {
  const model::ModelConfig& config = sizes.model;
  const cuda::ModelWeights weights = random_weights(config);
  cuda::Gemm gemm(cublaslt(), nullptr);
  for (const Step& step : sizes.steps) {
    const std::string what = fmt::format("{} x {} tokens, contexts of {}", step.seqs,
                                         with_commas(step.tokens), with_commas(step.length));
    if (memory_of(config, step) > cuda::device_facts().free_bytes) {
      std::puts(fmt::format("| {}: not measured, too little memory is free | | | | | |", what).c_str());
      continue;
    }
    if (step.tokens == 1) {
      print_row("layers as a graph, " + what, seconds_as_a_graph(config, weights, step),
                needs_of_layers(config, step), ceilings);
    }
    cuda::CudaOps::prepare(gemm, weights, limits_of(step));
    Steps steps(config, weights, gemm, step, nullptr);
    print_row("layers, " + what, seconds_of_waiting([&] { steps.compute(); }), needs_of_layers(config, step),
              ceilings);
    print_row("and logits on the host, " + what, seconds_of_waiting([&] { steps.compute_logits(); }),
              needs_of_step(config, step), ceilings);
  }
}

}  // namespace quire::test::gpu
