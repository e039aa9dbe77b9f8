// What is said of the memory for weights before anything is there, against what is taken, and what is in it.
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/activations.h"
#include "backend/cuda/device_sampler.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/int4_weights.h"
#include "backend/cuda/int8_weights.h"
#include "backend/cuda/weights.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "tests/device_on_host/target.h"
#include "tests/support/data.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

void expect_as_loaded(const std::filesystem::path& model, DType dtype,
                      std::optional<WeightFormat> quantization = std::nullopt) {
  SCOPED_TRACE(model.string());
  Device device(1);
  ThreadPool pool(1);
  model::ModelConfig config = formats::load_model_config(model);
  const cuda::ModelWeights weights =
      cuda::load_weights(model, config, dtype, pool, nullptr, {.quantization = quantization});
  const uint64_t said = cuda::weight_bytes(config, dtype, quantization);
  // Of integers, scales are apart, and so is a head that is tied.
  const size_t gaps =
      cuda::kArenaAlignment * (formats::expected_tensors(config).size() * (quantization ? 3 : 1) + 2);
  EXPECT_GE(weights.memory.size(), said);
  EXPECT_LT(weights.memory.size(), said + gaps);
}

TEST(MemoryUse, OfWeightsIsWhatIsLoaded) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) expect_as_loaded(demo_model_dir(), dtype);
  QUIRE_NEEDS_DATA("golden-models/qwen3");
  for (const char* name : {"qwen2", "qwen3", "phi3", "llama3-tied", "mixtral"}) {
    for (const std::optional<WeightFormat> quantization :
         {std::optional<WeightFormat>(), {WeightFormat::kInt8}, {WeightFormat::kInt4}}) {
      expect_as_loaded(data_dir() / "golden-models" / name, DType::kBF16, quantization);
    }
  }
}

TEST(MemoryUse, OfSamplingIsWhatIsTaken) {
  for (const uint32_t vocabulary : {1000U, 128256U}) {
    Device device(1);
    const cuda::SamplerLimits limits = cuda::sampler_limits(64, 500, vocabulary);
    const cuda::DeviceSampler sampler(limits, nullptr);
    const cuda::SamplerMemory sizes = cuda::lay_out_sampler(limits);
    const size_t pinned = backend::kMostOpenSteps * (sizes.lists + sizes.results);
    EXPECT_EQ(cuda::sampling_bytes(64, 500, vocabulary) + pinned, device.bytes_allocated());
  }
  EXPECT_EQ(cuda::sampling_bytes(64, 500, cuda::kMostSampledVocabulary + 1), 0U);
}

TEST(MemoryUse, OfProductsIsWhatIsTaken) {
  Device device(1);
  const cuda::Gemm gemm(fake_cublaslt(), nullptr);
  EXPECT_EQ(device.bytes_allocated(), cuda::kGemmWorkspace);
}

/// All matrices and norms, in the order of the layers.
std::vector<std::byte> contents(const cuda::ModelWeights& weights, const model::ModelConfig& config) {
  std::vector<std::byte> out;
  const auto add = [&out](const void* at, size_t bytes) {
    if (at == nullptr) return;
    out.resize(out.size() + bytes);
    cuda::copy_to_host(out.data() + out.size() - bytes, at, bytes, nullptr);
  };
  const size_t element = dtype_bytes(weights.dtype);
  const auto add_matrix = [&](const cuda::Matrix& one) {
    const size_t integers = one.group_scales ? cuda::int4_row_bytes(one.k) : cuda::int8_row_bytes(one.k);
    add(one.data, one.n * (one.scales ? integers : one.k * element));
    add(one.group_scales, cuda::int4_scale_bytes(one.n, one.k));
    add(one.scales, one.n * sizeof(float));
    add(one.bias, one.n * element);
  };
  const size_t norm = config.hidden_size * sizeof(float);
  add(weights.embedding, size_t{config.vocab_size} * config.hidden_size * element);
  for (const cuda::LayerWeights& layer : weights.layers) {
    for (const cuda::Matrix& one : {layer.qkv, layer.o, layer.gate_up, layer.down}) add_matrix(one);
    for (const float* one : {layer.attention_norm, layer.post_attention_norm, layer.ffn_norm}) add(one, norm);
  }
  add(weights.final_norm, norm);
  add_matrix(weights.head);
  return out;
}

void expect_same_bytes(const std::filesystem::path& model, std::optional<WeightFormat> quantization) {
  model::ModelConfig config = formats::load_model_config(model);
  ThreadPool pool(2);
  const auto loaded = [&](uint64_t order, bool staged) {
    Device device(order);
    const cuda::OwnStream stream;
    const DType dtype = quantization ? DType::kBF16 : DType::kF32;
    const cuda::ModelWeights weights =
        staged ? cuda::load_weights(model, config, dtype, pool, stream.get(),
                                    {.quantization = quantization, .staged = 4096})
               : cuda::load_weights(model, config, dtype, pool, nullptr, {.quantization = quantization});
    return contents(weights, config);
  };
  const std::vector<std::byte> expected = loaded(0, false);
  for (uint64_t order = 1; order <= 5; ++order) {
    EXPECT_TRUE(loaded(order, true) == expected) << model << " in order " << order;
  }
}

/// In pieces that no tensor fits in, which the device copies when it likes, and all at once.
TEST(WeightStaging, BringsTheSameBytesInEveryOrder) {
  // The second has factors to which 1 is added.
  const std::filesystem::path models[] = {demo_model_dir(), "tests/model/fixtures/gemma3-one-kv"};
  for (const std::filesystem::path& model : models) expect_same_bytes(model, std::nullopt);
  expect_same_bytes(demo_model_dir(), WeightFormat::kInt8);
  expect_same_bytes(demo_model_dir(), WeightFormat::kInt4);
}

}  // namespace
}  // namespace quire::test::fibers
