// The launches of a step, which times on paper count, against those that an executor makes.
#include "backend/cuda/launches.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/inspect.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device_sampler.h"
#include "formats/model_config.h"
#include "tests/backend/variants.h"
#include "tests/device_on_host/device.h"
#include "tests/device_on_host/fake_cublaslt.h"
#include "tests/device_on_host/support.h"
#include "tests/support/data.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

/// An executor with a backend of its own.
class OnDevice final : public backend::Executor {
 public:
  OnDevice(const cuda::CudaOptions& options, const model::ModelConfig& config, const backend::PoolSize& size)
      : backend_(options, config, backend::cpu::model_shape(config, options.dtype), fake_cublaslt()) {
    backend_.allocate(size);
    executor_ = backend_.make_executor();
  }
  backend::Ticket submit(const control::StepPlan& plan) override { return executor_->submit(plan); }
  void provide(backend::Ticket ticket, backend::TokenMasks& masks) override {
    executor_->provide(ticket, masks);
  }
  control::StepResult wait(backend::Ticket ticket) override { return executor_->wait(ticket); }
  uint32_t depth() const override { return executor_->depth(); }

 private:
  cuda::CudaBackend backend_;
  std::unique_ptr<backend::Executor> executor_;
};

/// Kernels and products a step, all kernels launched to begin early, of a sequence that generates a few
/// tokens. Where products are offered backwards, few_rows() has other bits, and is not taken.
double launches_of_a_step(const std::filesystem::path& path, const model::ModelConfig& config, DType dtype,
                          Offers offers = Offers::kBackwards) {
  constexpr uint32_t kSteps = 3;
  const Offering offering(offers);
  Device device(1);
  const cuda::CudaOptions options{
      .model = path, .dtype = dtype, .limits = {.rows = 64, .seqs = 4, .positions = 64, .logit_rows = 64}};
  uint64_t before = 0;
  const auto make = [&](uint32_t num_blocks, uint32_t max_slots, uint32_t num_host_blocks) {
    auto made = std::make_unique<OnDevice>(options, config,
                                           backend::PoolSize{.num_blocks = num_blocks,
                                                             .num_host_blocks = num_host_blocks,
                                                             .block_size = kBlockSize,
                                                             .num_slots = max_slots,
                                                             .max_model_len = 64});
    before = device.launches() + products();
    return made;
  };
  control::SeqSpec spec;
  spec.prompt = std::vector<TokenId>{5, 3, 2, 7, 1};
  spec.max_tokens = kSteps;
  const auto all = run_alone({make, backend::cpu::model_shape(config, dtype).kv_windows}, {spec});
  EXPECT_EQ(all[0].tokens.size(), kSteps) << all[0].error;
  EXPECT_EQ(device.early_launches(), device.launches());
  EXPECT_TRUE(device.findings().empty()) << device.report();
  return static_cast<double>(device.launches() + products() - before) / kSteps;
}

/// However little memory there is for the rows of the other kernel, of which there is one.
TEST(Launches, OfSamplingAreOneOfEachKernel) {
  constexpr uint32_t kRows = 12;
  constexpr uint32_t kVocabulary = 200;
  Device device(1);
  const cuda::OwnStream stream;
  DeviceArray<float> logits(device, "logits", stored_floats(1, kRows * kVocabulary, DType::kF32));
  const cuda::DeviceLogits on_device{logits.data(), kVocabulary};
  cuda::DeviceSampler sampler(
      {.slots = kRows, .rows = kRows, .positions = 8, .vocabulary = kVocabulary, .workspace_bytes = 1},
      stream.get());
  sampler.begin(0);
  for (uint32_t row = 0; row < kRows; ++row) {
    SamplingParams params;
    params.temperature = row == 5 ? 1.0F : 0.0F;
    cuda::SlotSampling sampling;
    sampling.reset(params, std::vector<TokenId>{1}, 1);
    EXPECT_EQ(sampler.add(sampling, row, 1, row, on_device), row);
  }
  sampler.flush(on_device);
  cuda::synchronize(stream.get());
  EXPECT_EQ(device.launches(), 2U);
  EXPECT_EQ(device.early_launches(), 2U);
  for (uint32_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(sampler.result(0, row).status, cuda::SampleStatus::kToken) << row;
  }
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

TEST(Launches, AreThoseOfAStep) {
  model::ModelConfig config = formats::load_model_config(demo_model_dir());
  EXPECT_EQ(launches_of_a_step(demo_model_dir(), config, DType::kBF16), cuda::step_launches(config));
  // Their rows are no multiples of 16 bytes in bf16; without tensor cores attention has two launches a layer.
  for (const char* name : {"gemma3-one-kv", "granite-one-kv", "olmo2-one-kv"}) {
    const std::filesystem::path model = std::filesystem::path("tests/model/fixtures") / name;
    config = formats::load_model_config(model);
    const double launches = launches_of_a_step(model, config, DType::kF32);
    EXPECT_EQ(launches, cuda::step_launches(config) + config.num_layers) << name;
  }
  QUIRE_NEEDS_DATA("golden-models/qwen3");
  for (const char* name : {"qwen3", "phi3", "mistral-window", "mixtral"}) {
    const std::filesystem::path model = data_dir() / "golden-models" / name;
    config = formats::load_model_config(model);
    EXPECT_EQ(launches_of_a_step(model, config, DType::kBF16), cuda::step_launches(config)) << name;
  }
}

TEST(Launches, WithoutThoseOfGatesAndRopeWhereTheProductOfFewRowsAppliesThem) {
  const model::ModelConfig config = formats::load_model_config(demo_model_dir());
  EXPECT_EQ(launches_of_a_step(demo_model_dir(), config, DType::kBF16, Offers::kLate),
            cuda::step_launches(config) - 2 * config.num_layers);
}

}  // namespace
}  // namespace quire::test::fibers
