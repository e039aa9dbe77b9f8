// What the rest of quire knows of the CPU: sizes, speed, and the bytes of its blocks.
#include "backend/cpu/cpu_backend.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/machine_limits.h"
#include "decoder/batch.h"
#include "formats/model_config.h"
#include "model/kv_groups.h"
#include "tests/backend/bad_plans.h"
#include "tests/support/data.h"
#include "tests/support/sanitized.h"

namespace quire::backend::cpu {
namespace {

constexpr PoolSize kSize = {
    .num_blocks = 12, .num_host_blocks = 2, .block_size = 16, .num_slots = 2, .max_model_len = 128};

std::unique_ptr<CpuBackend> make(std::optional<DType> kv_dtype = std::nullopt) {
  const auto dir = test::demo_model_dir();
  return std::make_unique<CpuBackend>(
      std::make_unique<LoadedModel>(dir, formats::load_model_config(dir),
                                    DecoderOptions{.compute = DType::kF32}, kernels::best_isa_level(), 2),
      kv_dtype);
}

TEST(CpuBackend, SaysHowMuchMemoryIsLeft) {
  const auto memory = make()->memory();
  const auto machine = available_memory();
  ASSERT_EQ(memory.has_value(), machine.has_value());
  if (!memory) return;
  EXPECT_EQ(memory->kv_bytes, memory->free_bytes / 2);
  EXPECT_EQ(memory->source, machine->source);
}

TEST(CpuBackend, CountsWhatItsPoolsWillTake) {
  const auto backend = make(DType::kI8);
  EXPECT_EQ(backend->untouched_bytes(), 0U);
  backend->allocate(kSize);
  EXPECT_EQ(backend->untouched_bytes(), 14 * backend->shape().kv_block_bytes(16));
  EXPECT_LT(backend->shape().kv_block_bytes(16), make()->shape().kv_block_bytes(16));
  backend->reserve(100);
  EXPECT_EQ(backend->untouched_bytes(), 8 * backend->shape().kv_block_bytes(16));  // 6 are full
}

int64_t page_faults() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt;
}

/// Those of a step of 160 tokens, after one of a single token.
int64_t page_faults_of_first_step(bool reserved) {
  const auto dir = test::demo_model_dir();
  LoadedModel model(dir, formats::load_model_config(dir), DecoderOptions{.compute = DType::kBF16},
                    kernels::best_isa_level(), 2);
  KvCache cache(model.decoder->config(), DType::kBF16, 10, 16);
  if (reserved) {
    model.decoder->reserve(model.context, 160, 1);
    cache.touch(model.pool, 10);
  }
  const auto tables = model::consecutive_tables(1, 10, 0);
  const std::vector<TokenId> tokens(160, 5);
  const auto step = [&](uint32_t count) {
    const decoder::BatchSeq seq{count, 0, tables, 1};
    model.decoder->forward(model.context, cache, std::span(tokens).first(count), {&seq, 1});
  };
  step(1);
  const int64_t before = page_faults();
  step(160);
  return page_faults() - before;
}

TEST(CpuBackend, FirstStepFindsTheMemoryThatWasReserved) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own in a step";
  const int64_t without = page_faults_of_first_step(false);
  EXPECT_LT(page_faults_of_first_step(true) * 4, without);
}

TEST(CpuBackend, ReservesNoMoreThanThePoolHasRoomFor) {
  const auto backend = make();
  backend->allocate(kSize);
  backend->reserve(UINT32_MAX);
  EXPECT_EQ(backend->untouched_bytes(), 2 * backend->shape().kv_block_bytes(16));  // of the host pool
}

TEST(CpuBackend, ReservesNoMoreThanAQuarterOfTheMemory) {
  constexpr uint64_t kBytes = 50'000;
  EXPECT_EQ(CpuBackend::tokens_to_reserve(512, 4096, kBytes, uint64_t{8} << 30), 512U);
  EXPECT_EQ(CpuBackend::tokens_to_reserve(512, 4096, kBytes, 40'000'000), 200U);
  EXPECT_EQ(CpuBackend::tokens_to_reserve(512, 96, kBytes, UINT64_MAX), 96U);
  EXPECT_EQ(CpuBackend::tokens_to_reserve(UINT32_MAX, UINT64_MAX, kBytes, UINT64_MAX), 8192U);
  EXPECT_EQ(CpuBackend::tokens_to_reserve(512, 4096, kBytes, 0), 0U);
}

TEST(CpuBackend, MeasuresHowFastItIs) {
  const auto backend = make();
  backend->allocate(kSize);
  const StepSpeeds second = backend->probe(1'000'000'000);
  EXPECT_GT(second.tokens_a_step, 0U);
  EXPECT_EQ(second.tokens_a_step % 16, 0U);
  EXPECT_TRUE(second.varies);
  EXPECT_GT(second.costs.prefill_token, 0);
  EXPECT_GT(second.costs.decode_token, second.costs.prefill_token);
  EXPECT_EQ(backend->probe(0).tokens_a_step, 0U);
}

TEST(CpuBackend, BlocksAreReadAndWrittenWhole) {
  const auto backend = make();
  backend->allocate(kSize);
  const auto executor = backend->make_executor();
  executor->wait(executor->submit(test::first_plan()));
  const size_t size = backend->shape().kv_block_bytes(16);
  std::vector<std::byte> computed(size);
  const BlockId block = test::first_plan().seqs[0].new_blocks[0];
  backend->read_block(block, computed);
  EXPECT_THAT(computed, testing::Contains(testing::Ne(std::byte{0})));
  std::vector<std::byte> copied(size);
  const BlockId other = block + 1;
  backend->write_block(other, computed);
  backend->read_block(other, copied);
  EXPECT_EQ(copied, computed);
  backend->read_block(block, copied);
  EXPECT_EQ(copied, computed);
}

TEST(CpuBackend, NamesWhatTheBitsOfABlockDependOn) {
  const json::object facts = make()->kv_facts();
  const json::object other = make(DType::kI8)->kv_facts();
  EXPECT_NE(facts, other);
  EXPECT_EQ(facts.at("kv_cache_dtype"), "f32");
  EXPECT_EQ(other.at("kv_cache_dtype"), "i8");
  for (const char* name : {"dtype", "weights", "isa", "kernel_version"}) {
    ASSERT_TRUE(facts.contains(name)) << name;
    EXPECT_EQ(facts.at(name), other.at(name)) << name;
  }
}

TEST(CpuBackend, DescribesItselfInALine) {
  const std::string line = make()->describe();
  EXPECT_THAT(line, testing::HasSubstr("f32 weights, K/V in f32, kernels "));
  EXPECT_THAT(line, testing::EndsWith(" on 2 threads"));
}

}  // namespace
}  // namespace quire::backend::cpu
