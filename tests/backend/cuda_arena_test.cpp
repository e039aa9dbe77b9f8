// Where buffers of the CUDA backend lie, which needs no device.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/activations.h"
#include "backend/cuda/arena.h"
#include "backend/cuda/expert_product.h"
#include "backend/cuda/few_rows.h"
#include "backend/cuda/gemm_choice.h"
#include "base/rng.h"

namespace quire::backend::cuda {
namespace {

/// Every pair that lives in one operation has no byte in common, and all lie within `size`.
void expect_apart(const std::vector<ArenaBuffer>& buffers, size_t size) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const ArenaBuffer& one = buffers[i];
    EXPECT_EQ(one.offset % kArenaAlignment, 0U);
    EXPECT_LE(one.offset + one.bytes, size);
    for (size_t j = 0; j < i; ++j) {
      const ArenaBuffer& other = buffers[j];
      if ((one.lives & other.lives) == 0 || one.bytes == 0 || other.bytes == 0) continue;
      EXPECT_TRUE(one.offset + one.bytes <= other.offset || other.offset + other.bytes <= one.offset)
          << i << " and " << j;
    }
  }
}

TEST(Arena, BuffersThatLiveTogetherShareNoByte) {
  SplitMix64 rng(11);
  for (int round = 0; round < 2000; ++round) {
    std::vector<ArenaBuffer> buffers(1 + rng.below(20));
    for (ArenaBuffer& buffer : buffers) {
      buffer.bytes = rng.below(8) == 0 ? 0 : rng.below(uint64_t{1} << (4 + rng.below(14)));
      buffer.lives = 0;
      // Stretches of operations, some of which go around, and sets with gaps.
      const auto first = static_cast<uint32_t>(rng.below(16));
      const auto length = static_cast<uint32_t>(1 + rng.below(6));
      for (uint32_t i = 0; i < length; ++i) buffer.lives |= Lives{1} << ((first + i) % 16);
      buffer.lives = rng.below(10) == 0 ? kAlways : buffer.lives & 0xffff;
      if (rng.below(4) == 0) buffer.lives |= Lives{1} << rng.below(16);
    }
    const size_t size = place_buffers(buffers);
    EXPECT_LE(size, unshared_bytes(buffers));
    expect_apart(buffers, size);
    if (testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Arena, SharesWhatIsNeverNeededTogether) {
  std::vector<ArenaBuffer> buffers = {{"small", 300, 0b001}, {"large", 5000, 0b110}, {"next", 1000, 0b100}};
  EXPECT_EQ(place_buffers(buffers), 5120U + 1024U);
  EXPECT_EQ(unshared_bytes(buffers), 512U + 5120U + 1024U);
  EXPECT_EQ(buffers[0].offset, 0U);
  EXPECT_EQ(buffers[1].offset, 0U);
  EXPECT_EQ(buffers[2].offset, 5120U);
}

TEST(Arena, FillsTheLowestGap) {
  // Below "last" there is room where "first" has ended.
  std::vector<ArenaBuffer> buffers = {
      {"first", 4096, 0b001}, {"last", 2048, 0b011}, {"small", 512, 0b010}, {"smaller", 256, 0b010}};
  EXPECT_EQ(place_buffers(buffers), 6144U);
  EXPECT_EQ(buffers[1].offset, 4096U);
  EXPECT_EQ(buffers[2].offset, 0U);
  EXPECT_EQ(buffers[3].offset, 512U);
}

TEST(Arena, OfNothing) {
  std::vector<ArenaBuffer> buffers = {{"empty", 0, kAlways}};
  EXPECT_EQ(place_buffers(buffers), 0U);
  EXPECT_EQ(unshared_bytes({}), 0U);
}

model::ModelConfig small_model() {
  model::ModelConfig out;
  out.architecture = "LlamaForCausalLM";
  out.vocab_size = 1000;
  out.hidden_size = 256;
  out.num_layers = 2;
  out.num_heads = 4;
  out.num_kv_heads = 2;
  out.head_dim = 64;
  out.ffn_size = 1024;
  out.windows.assign(out.num_layers, 0);
  return out;
}

constexpr StepLimits kLimits{.rows = 128, .seqs = 8, .positions = 512, .logit_rows = 8};

TEST(Activations, SharePlacesOverALayer) {
  const Activations all = lay_out_activations(small_model(), DType::kBF16, 16, kLimits);
  const std::vector<ArenaBuffer> buffers(all.buffers.begin(), all.buffers.end());
  expect_apart(buffers, all.bytes);
  size_t always = 0;
  for (const ArenaBuffer& buffer : buffers) {
    if (buffer.lives == kAlways) always += unshared_bytes({&buffer, 1});
  }
  // No operation needs more than the gated network's: gate and up, and their product, of all rows and of few.
  const size_t gated = (size_t{128} * 3 + padded_rows(kFewRows)) * 1024 * 2;
  EXPECT_EQ(all.bytes, always + gated);
  EXPECT_LT(all.bytes, unshared_bytes(buffers));
}

/// What two operations exchange lives in both.
TEST(Activations, LiveFromWhoWritesToWhoReads) {
  const Activations all = lay_out_activations(small_model(), DType::kBF16, 16, kLimits);
  const auto lives = [&](Activation which) { return describe(all.of(which).lives); };
  EXPECT_EQ(lives(Activation::kResidual), "always");
  EXPECT_EQ(lives(Activation::kNormed), "norm, qkv, ffn norm, gate and up");
  EXPECT_EQ(lives(Activation::kQkv), "qkv to attend");
  EXPECT_EQ(lives(Activation::kAttended), "attend, out");
  EXPECT_EQ(lives(Activation::kAdded), "norm, out, ffn norm, down");
  EXPECT_EQ(lives(Activation::kPartials), "attend");
  EXPECT_EQ(lives(Activation::kLogits), "always");
  EXPECT_EQ(lives(Activation::kRouted), "gate and up");
  EXPECT_EQ(lives(Activation::kChoices), "gate and up to down");
  EXPECT_EQ(lives(Activation::kOfExperts), "down");
  EXPECT_EQ(lives(Activation::kFfnOfFew), "gate and up to down");
}

/// What experts need has room for all choices of a step, and nothing for dense networks that are not there.
TEST(Activations, OfExpertsHaveRoomForAllChoices) {
  const auto bytes = [](const model::ModelConfig& config, Activation which) {
    return lay_out_activations(config, DType::kBF16, 16, kLimits).of(which).bytes;
  };
  model::ModelConfig config = small_model();
  for (const Activation which : {Activation::kRouted, Activation::kChoices, Activation::kOfExperts}) {
    EXPECT_EQ(bytes(config, which), 0U);
  }
  config.moe = {.num_experts = 10, .top = 3, .ffn_size = 96};
  EXPECT_EQ(bytes(config, Activation::kRouted), 128 * 16 * sizeof(float));
  EXPECT_EQ(bytes(config, Activation::kOfExperts), 128 * 3 * 256 * 2);
  EXPECT_EQ(bytes(config, Activation::kFfn), 128 * 3 * 96 * 2);
  EXPECT_EQ(bytes(config, Activation::kGateUp), 2 * 128 * 3 * 96 * 2);
  EXPECT_EQ(bytes(config, Activation::kFfnOfFew), 0U);
  config.moe.layers = {true, false};
  EXPECT_EQ(bytes(config, Activation::kFfn), 128 * 1024 * 2);
  EXPECT_EQ(bytes(config, Activation::kFfnOfFew), padded_rows(kFewRows) * 1024 * 2);
  const ChoiceNumbers numbers = choice_numbers(config, kLimits);
  EXPECT_EQ(bytes(config, Activation::kChoices), numbers.all * sizeof(uint32_t));
  for (uint32_t rows = 1; rows <= kLimits.rows; ++rows) {
    const uint32_t choices = rows * config.moe.top;
    const uint32_t in_tile = tile_choices(choices, config.moe.num_experts);
    EXPECT_LE(choices, numbers.weights - numbers.chosen);
    EXPECT_LE(choices, numbers.order - numbers.weights);
    EXPECT_LE(choices, numbers.tiles - numbers.order);
    if (in_tile == 1) continue;
    const size_t tiles = expert_tiles(choices, config.moe.num_experts, in_tile);
    EXPECT_LE(tiles * sizeof(ExpertTile), (numbers.all - numbers.tiles) * sizeof(uint32_t));
  }
}

}  // namespace
}  // namespace quire::backend::cuda
