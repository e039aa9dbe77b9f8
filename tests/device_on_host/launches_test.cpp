// The launches of a step, which times on paper count, against those that a step makes.
#include "backend/cuda/launches.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/cuda_ops.h"
#include "decoder/forward_pass.h"
#include "formats/model_config.h"
#include "model/kv_groups.h"
#include "tests/device_on_host/device.h"
#include "tests/device_on_host/fake_cublaslt.h"
#include "tests/support/data.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

/// Kernels and products of a step of 5 tokens, with the logits of the last.
uint64_t launches_of(const std::filesystem::path& path, model::ModelConfig& config, DType dtype) {
  constexpr uint32_t kBlock = 16;
  Device device(1);
  ThreadPool pool(1);
  const cuda::ModelWeights weights = cuda::load_weights(path, config, dtype, pool, nullptr);
  cuda::KvCache cache(config, dtype, 8, kBlock);
  cuda::Gemm gemm(fake_cublaslt(), nullptr);
  cuda::CudaOps ops(config, weights, cache, gemm, nullptr,
                    {.rows = 64, .seqs = 1, .positions = 64, .logit_rows = 64});
  decoder::ForwardPass pass(config, dtype, 64);
  const std::vector<TokenId> tokens = {5, 3, 2, 7, 1};
  const auto tables = model::consecutive_tables(cache.num_groups(), 1, 0);
  const decoder::BatchSeq seq{5, 0, tables, 1};
  const uint64_t before = device.launches() + products();
  pass.compute(ops, {cache.groups(), cache.num_blocks(), kBlock}, tokens, {&seq, 1});
  pass.logits(ops, pass.logit_rows());
  EXPECT_TRUE(device.findings().empty()) << device.report();
  return device.launches() + products() - before;
}

TEST(Launches, AreThoseOfAStep) {
  model::ModelConfig config = formats::load_model_config(demo_model_dir());
  EXPECT_EQ(launches_of(demo_model_dir(), config, DType::kBF16), cuda::step_launches(config));
  // Their rows are no multiples of 16 bytes in bf16; without tensor cores attention has two launches a layer.
  for (const char* name : {"gemma3-one-kv", "granite-one-kv", "olmo2-one-kv"}) {
    const std::filesystem::path model = std::filesystem::path("tests/model/fixtures") / name;
    config = formats::load_model_config(model);
    const uint64_t launches = launches_of(model, config, DType::kF32);
    EXPECT_EQ(launches, cuda::step_launches(config) + config.num_layers) << name;
  }
  QUIRE_NEEDS_DATA("golden-models/qwen3");
  for (const char* name : {"qwen3", "phi3", "mistral-window"}) {
    const std::filesystem::path model = data_dir() / "golden-models" / name;
    config = formats::load_model_config(model);
    EXPECT_EQ(launches_of(model, config, DType::kBF16), cuda::step_launches(config)) << name;
  }
}

}  // namespace
}  // namespace quire::test::fibers
