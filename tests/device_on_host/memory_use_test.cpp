// What is said of the device's memory before anything is there, against what is taken.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "backend/cuda/activations.h"
#include "backend/cuda/weights.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "tests/device_on_host/target.h"
#include "tests/support/data.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

void expect_as_loaded(const std::filesystem::path& model, DType dtype) {
  SCOPED_TRACE(model.string());
  Device device(1);
  ThreadPool pool(1);
  model::ModelConfig config = formats::load_model_config(model);
  const cuda::ModelWeights weights = cuda::load_weights(model, config, dtype, pool, nullptr);
  const uint64_t said = cuda::weight_bytes(config, dtype);
  const size_t gaps = cuda::kArenaAlignment * formats::expected_tensors(config).size();
  EXPECT_GE(weights.memory.size(), said);
  EXPECT_LT(weights.memory.size(), said + gaps);
}

TEST(MemoryUse, OfWeightsIsWhatIsLoaded) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) expect_as_loaded(demo_model_dir(), dtype);
  QUIRE_NEEDS_DATA("golden-models/qwen3");
  for (const char* name : {"qwen2", "qwen3", "phi3", "llama3-tied"}) {
    expect_as_loaded(data_dir() / "golden-models" / name, DType::kBF16);
  }
}

}  // namespace
}  // namespace quire::test::fibers
