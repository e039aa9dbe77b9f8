// A whole engine with --device cuda: the library is loaded as from a build with CUDA, and its GPU is one of
// fibers.
#include <condition_variable>
#include <dlfcn.h>
#include <filesystem>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "startup/devices.h"
#include "startup/local_engine.h"
#include "tests/support/data.h"

namespace quire::test::fibers {
namespace {

using testing::HasSubstr;

startup::EngineOptions options_of(const char* device) {
  startup::EngineOptions options;
  options.model.model = demo_model_dir();
  options.model.threads = 1;
  options.model.dtype = "f32";
  options.num_blocks = 24;
  options.max_model_len = 128;
  options.max_num_batched_tokens = "64";
  const startup::DeviceChoice choice = startup::find_device(device);
  options.device = choice.device;
  options.device_index = choice.index;
  return options;
}

const std::vector<std::string> kPrompts = {"Once upon a time", "The dog saw a",
                                           "Lily and Tom went to the park and", "One day a little"};

/// What an engine writes after each of the prompts, all at once.
std::vector<std::string> stories(const startup::EngineOptions& options) {
  startup::LocalEngine local(options, "demo");
  std::mutex mutex;
  std::condition_variable changed;
  size_t open = kPrompts.size();
  std::vector<std::string> texts(kPrompts.size());
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    engine::GenerationRequest request;
    request.prompt = local.tokenizer->encode(kPrompts[i], true);
    request.max_tokens = 12;
    request.sampling.temperature = 0;
    const auto sink = [&, i](const engine::RequestOutput& output) {
      const std::lock_guard lock(mutex);
      for (const engine::ChoiceOutput& choice : output.choices) texts[i] += choice.text;
      if (!output.done) return;
      --open;
      changed.notify_one();
    };
    EXPECT_TRUE(local.engine->submit(std::move(request), sink));
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return open == 0; });
  lock.unlock();
  return texts;
}

TEST(DeviceEngine, WritesWhatTheCpuWrites) {
  EXPECT_EQ(stories(options_of("cuda")), stories(options_of("cpu")));
}

TEST(DeviceEngine, IsWhatAutoTakes) {
  const startup::LocalEngine local(options_of("auto"), "demo");
  EXPECT_THAT(local.backend->describe(), HasSubstr("on fibers"));
}

TEST(DeviceEngine, SaysWhatFastGemmGivesUp) {
  startup::EngineOptions options = options_of("cuda");
  testing::internal::CaptureStderr();
  stories(options);
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("--fast-gemm"), std::string::npos);
  options.fast_gemm = true;
  testing::internal::CaptureStderr();
  const std::vector<std::string> fast = stories(options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("--fast-gemm: an answer may depend on what else is computed with it"));
  for (const std::string& story : fast) EXPECT_FALSE(story.empty());
}

/// They make other stories, but not all at once.
void expect_stories_with(const char* quantization, const std::vector<std::string>& on_cpu, size_t as_there) {
  SCOPED_TRACE(quantization);
  startup::EngineOptions options = options_of("cuda");
  options.model.dtype = "bf16";
  options.model.quantization = quantization;
  {
    const startup::LocalEngine local(options, "demo");
    EXPECT_THAT(local.backend->describe(),
                HasSubstr(fmt::format("{} weights and bf16 K/V on fibers", quantization)));
  }
  const std::vector<std::string> found = stories(options);
  for (size_t i = 0; i < on_cpu.size(); ++i)
    EXPECT_EQ(found[i].substr(0, as_there), on_cpu[i].substr(0, as_there)) << found[i];
}

TEST(DeviceEngine, ComputesWithWeightsOfInt8) { expect_stories_with("int8", stories(options_of("cpu")), 8); }

/// The CPU quantizes these weights to the same numbers, but activations too.
TEST(DeviceEngine, ComputesWithWeightsOfInt4) {
  startup::EngineOptions on_cpu = options_of("cpu");
  on_cpu.model.quantization = "int4";
  expect_stories_with("int4", stories(on_cpu), 8);
}

TEST(DeviceEngine, SaysWhichWeightsItCannotHave) {
  const auto refusal = [](const char* dtype, const char* quantization,
                          bool fast_gemm = false) -> std::string {
    startup::EngineOptions options = options_of("cuda");
    options.fast_gemm = fast_gemm;
    options.model.dtype = dtype;
    options.model.quantization = quantization;
    try {
      const startup::LocalEngine local(options, "demo");
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(
      refusal("f32", "int8"),
      "--quantization: --device cuda multiplies int8 weights with bf16 or f16, not with f32 (--dtype bf16)");
  EXPECT_EQ(refusal("bf16", "int4", true),
            "--fast-gemm: changes nothing with --quantization int4, whose products are not cuBLASLt's");
}

/// The function of the library that the program has loaded.
void fail_after(uint64_t count) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  void* library = dlopen((self.parent_path() / "libquire_cuda.so").c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* call = reinterpret_cast<void (*)(uint64_t)>(dlsym(library, "quire_fail_after"));
  ASSERT_NE(call, nullptr) << dlerror();
  call(count);
  dlclose(library);
}

/// What became of one request: its error, or nothing.
std::string error_of_a_request(startup::LocalEngine& local) {
  engine::GenerationRequest request;
  request.prompt = local.tokenizer->encode(kPrompts[0], true);
  request.max_tokens = 40;
  std::promise<std::string> ended;
  const auto sink = [&](const engine::RequestOutput& output) {
    if (output.done) ended.set_value(output.error ? output.error->message : "");
  };
  const auto submitted = local.engine->submit(std::move(request), sink);
  return submitted ? ended.get_future().get() : submitted.error().message;
}

/// The device fails in the middle of an answer: whoever waits for one is told why, and nobody waits for ever.
TEST(DeviceEngine, EndsAllRequestsWhenTheDeviceFails) {
  startup::LocalEngine local(options_of("cuda"), "demo");
  EXPECT_EQ(error_of_a_request(local), "");
  fail_after(700);
  EXPECT_THAT(error_of_a_request(local),
              HasSubstr("CUDA: the work of a stream: an error that the test wants"));
  EXPECT_NE(error_of_a_request(local), "");
  EXPECT_THAT(local.engine->failure(), HasSubstr("CUDA: the work of a stream"));
}

TEST(DeviceEngine, SaysThatItsMemoryIsTooSmall) {
  startup::EngineOptions options = options_of("cuda");
  options.num_blocks = 0;
  options.gpu_memory_utilization = 0.001;
  try {
    const startup::LocalEngine local(options, "demo");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("beside weights and activations 0 B are left for K/V, and one block takes"));
    EXPECT_THAT(error.what(),
                HasSubstr("a higher --gpu-memory-utilization, or fewer --max-num-batched-tokens"));
  }
}

TEST(DeviceEngine, SaysThatThereIsNoSuchGpu) {
  try {
    const startup::LocalEngine local(options_of("cuda:2"), "demo");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "--device cuda: there is no GPU 2: this machine has 1, counted from 0; --device cpu computes on the "
        "processors of this machine");
  }
}

}  // namespace
}  // namespace quire::test::fibers
