// The table of devices: what a name gives, and what those without weights say.
#include "startup/devices.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "startup/cuda_memory.h"
#include "startup/engine_options.h"
#include "startup/model_files.h"
#include "startup/model_outline.h"
#include "tests/support/data.h"

namespace quire::startup {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string refusal_of(const char* name) {
  try {
    find_device(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

EngineOptions options_of(const char* device) {
  EngineOptions options;
  options.model.model = test::demo_model_dir();
  options.device = find_device(device).device;
  return options;
}

std::unique_ptr<backend::Backend> make(const EngineOptions& options) {
  const auto tokenizer = load_tokenizer(options.model.model);
  return options.device->make(options, config_of(options.model), *tokenizer);
}

TEST(Devices, AreFoundByName) {
  EXPECT_EQ(find_device("cpu").device, &default_device());
  EXPECT_FALSE(find_device("cpu").device->is_simulated);
  EXPECT_TRUE(find_device("sim").device->is_simulated);
  EXPECT_EQ(find_device("cuda").index, 0U);
  EXPECT_EQ(find_device("cuda:3").index, 3U);
  EXPECT_EQ(find_device("cuda:3").device, find_device("cuda").device);
  for (const Device& device : devices()) EXPECT_NE(device.make, nullptr);
}

TEST(Devices, ThatThereAreNotSayWhatThereIs) {
  EXPECT_EQ(refusal_of("tpu"), "'tpu' is not one of cpu, cuda, auto, sim");
  EXPECT_EQ(refusal_of("cpu:1"), "'cpu:1': only cuda may have a number, as in cuda:1");
  EXPECT_EQ(refusal_of("cuda:"), "'cuda:': what follows is not the number of a device, as in cuda:1");
  EXPECT_EQ(refusal_of("cuda:one"), "'cuda:one': what follows is not the number of a device, as in cuda:1");
}

/// Beside a test there is no libquire_cuda.so.
TEST(Devices, WithoutItsLibraryAGpuSaysWhatIsMissing) {
  const auto why = [](const EngineOptions& options) -> std::string {
    try {
      make(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EngineOptions options = options_of("cuda");
  const std::string error = why(options);
  EXPECT_THAT(error, HasSubstr("--device cuda: libquire_cuda.so is missing"));
  EXPECT_THAT(error, HasSubstr("./dev build cuda"));
  EXPECT_THAT(error, HasSubstr("--device cpu"));
  EXPECT_THAT(error, Not(HasSubstr("\n")));
  for (const char* quantization : {"int8", "int4"}) {
    options.model.quantization = quantization;
    options.model.dtype = "f32";
    EXPECT_EQ(why(options),
              fmt::format("--quantization: --device cuda multiplies {} weights with bf16 or f16, "
                          "not with f32 (--dtype bf16)",
                          quantization));
  }
  options.model.dtype = "bf16";
  EXPECT_THAT(why(options), HasSubstr("--device cuda: libquire_cuda.so is missing"));
  options.model.quantization = "auto";
  options.kv_cache_dtype = "int8";
  EXPECT_THAT(why(options), HasSubstr("--kv-cache-dtype"));
}

TEST(Devices, AGpuHasRoomForAllThatTheSchedulerMayPlan) {
  EngineOptions options = options_of("cuda");
  options.max_num_batched_tokens = "auto";
  for (const uint32_t seqs : {1U, 64U, 256U, 10'000U}) {
    options.max_num_seqs = seqs;
    EXPECT_GE(cuda_limits(options, {}).rows, auto_step_tokens(UINT64_MAX, seqs)) << seqs;
  }
  options.max_num_seqs = 64;
  options.max_num_batched_tokens = "300";
  EXPECT_EQ(cuda_limits(options, {}).rows, 300);
}

TEST(Devices, AutoTakesTheCpuWhereThereIsNoGpu) {
  EXPECT_THAT(make(options_of("auto"))->describe(), HasSubstr("kernels"));
}

TEST(Devices, ASimulatedOneHasNoWeightsAndNoBlocks) {
  EngineOptions options = options_of("sim");
  options.sim_speed = 2;
  const auto backend = make(options);
  EXPECT_EQ(backend->describe(), "simulated, at 2 times the speed: the words are arbitrary");
  EXPECT_TRUE(backend->kv_facts().empty());
  EXPECT_EQ(backend->untouched_bytes(), 0U);
  EXPECT_EQ(backend->memory()->kv_bytes, UINT64_MAX);
  std::array<std::byte, 16> bytes = {};
  EXPECT_THROW(backend->read_block(0, bytes), Error);
  EXPECT_THROW(backend->write_block(0, bytes), Error);
}

TEST(Devices, ASimulatedOneTakesThePlaceOfAMachine) {
  EngineOptions options = options_of("sim");
  ChosenMachine machine{.title = "a card", .memory = 64 << 20};
  machine.speed = {.bandwidth = 1e9, .f32 = 1e10, .f16 = 1e10, .bf16 = 1e10, .integer = 2e10};
  options.cost.machine = machine;
  const auto backend = make(options);
  EXPECT_EQ(backend->describe(), "simulated, at 1 times the speed of a card: the words are arbitrary");
  const ModelOutline model = outline_of(test::demo_model_dir());
  const SimulatedMachine expected = simulated_machine(model, {}, machine, 16);
  EXPECT_EQ(backend->memory()->kv_bytes, expected.kv_bytes);
  options.model.quantization = "int8";
  EXPECT_GT(make(options)->memory()->kv_bytes, expected.kv_bytes);
  options.kv_cache_dtype = "int8";
  EXPECT_LT(make(options)->shape().kv_bytes_per_token(), backend->shape().kv_bytes_per_token());
  // Windows that a flag sets count here too.
  options.model.sliding_window = 32;
  EXPECT_EQ(make(options)->shape().kv_windows, std::vector<uint32_t>{32});
}

TEST(Devices, ASimulatedOneIsAsFastAsItsCostsSay) {
  EngineOptions options = options_of("sim");
  options.cost.step_us = 1000;
  options.cost.prefill_tokens_per_ms = 7;
  options.cost.steps_in_flight = 2;
  const auto backend = make(options);
  backend->allocate({.num_blocks = 8, .num_slots = 4, .max_model_len = 64});
  const backend::StepSpeeds speeds = backend->probe(11'000'000);
  EXPECT_EQ(speeds.tokens_a_step, 70U);
  EXPECT_FALSE(speeds.varies);
  EXPECT_EQ(speeds.costs.decode_token, options.cost.model().hints(4).decode_token);
  EXPECT_EQ(backend->make_executor()->depth(), 2U);
}

TEST(Devices, HeadsThatInt8DoesNotFitAreRefused) {
  EngineOptions options = options_of("cpu");
  options.kv_cache_dtype = "int8";
  const auto tokenizer = load_tokenizer(options.model.model);
  model::ModelConfig config = config_of(options.model);
  config.head_dim = 18;
  try {
    options.device->make(options, config, *tokenizer);
    FAIL() << "it was made";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--kv-cache-dtype: int8 is for heads of a multiple of 4 elements"));
    EXPECT_THAT(error.what(), HasSubstr("those of the model have 18"));
  }
}

TEST(Devices, TheTypeOfKVDecidesTheSizeOfBlocks) {
  for (const char* device : {"cpu", "sim"}) {
    EngineOptions options = options_of(device);
    options.model.dtype = "f32";
    const uint64_t whole = make(options)->shape().kv_block_bytes(16);
    options.kv_cache_dtype = "bf16";
    EXPECT_EQ(make(options)->shape().kv_block_bytes(16), whole / 2) << device;
    options.kv_cache_dtype = "bf15";
    EXPECT_THROW(make(options), Error) << device;
  }
}

}  // namespace
}  // namespace quire::startup
