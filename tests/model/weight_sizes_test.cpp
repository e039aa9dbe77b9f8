// What weight_sizes says of a model is what load_weights makes of it.
#include <filesystem>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "backend/cpu/inspect.h"
#include "backend/cpu/weights.h"
#include "formats/checkpoint.h"
#include "formats/make_model.h"
#include "formats/model_config.h"
#include "tests/support/block_model.h"
#include "tests/support/data.h"

namespace quire::model {
namespace {

using backend::cpu::Linear;

struct PackedSizes {
  std::map<std::string, uint64_t> packed;
  uint64_t expert_bytes = 0;

  uint64_t add(const kernels::PackedMatrix& matrix) {
    packed[std::string(weight_format_name(matrix.format()))] += matrix.num_bytes();
    return matrix.num_bytes();
  }
  uint64_t add(const Linear& linear) {
    uint64_t bytes = 0;
    for (const kernels::PackedMatrix& matrix : linear.matrices) bytes += add(matrix);
    add(linear.bias);
    return bytes;
  }
  void add(const Buffer& vector) { packed["f32"] += vector.size(); }
};

PackedSizes sizes_of(const backend::cpu::ModelWeights& weights) {
  PackedSizes out;
  for (const backend::cpu::LayerWeights& layer : weights.layers) {
    for (const Linear* each : {&layer.qkv, &layer.o, &layer.ffn.gate_up, &layer.ffn.down}) out.add(*each);
    for (const Buffer* each : {&layer.attention_norm, &layer.q_norm, &layer.k_norm,
                               &layer.post_attention_norm, &layer.ffn_norm, &layer.post_ffn_norm}) {
      out.add(*each);
    }
    if (layer.router.num_bytes() > 0) out.add(layer.router);
    for (const backend::cpu::FeedForward& expert : layer.experts) {
      out.expert_bytes += out.add(expert.gate_up) + out.add(expert.down);
    }
  }
  out.add(weights.final_norm);
  out.add(weights.head);
  return out;
}

void expect_as_loaded(const std::filesystem::path& model, WeightFormat format, bool own_blocks) {
  ModelConfig config = formats::load_model_config(model);
  ThreadPool pool(1);
  kernels::KernelContext context{kernels::best_isa_level(), pool};
  const backend::cpu::WeightSetting setting{
      .compute = config.dtype, .format = format, .own_blocks = own_blocks};
  const backend::cpu::ModelWeights weights = load_weights(model, config, setting, context);
  const PackedSizes loaded = sizes_of(weights);
  const auto file = formats::Checkpoint::open(model);
  const backend::cpu::WeightSizes sizes = backend::cpu::weight_sizes(config, format, file.get(), own_blocks);
  EXPECT_EQ(sizes.packed, loaded.packed);
  EXPECT_EQ(sizes.matrix_formats, formats_in_use(weights));
  EXPECT_EQ(sizes.expert_bytes, loaded.expert_bytes);
  EXPECT_EQ(sizes.embedding_bytes, weights.embedding.view().num_bytes());
}

TEST(WeightSizes, AreThoseOfLoadedWeights) {
  const auto tiny = test::temp_dir();
  formats::make_model("tiny", tiny, 1);
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kInt8, WeightFormat::kInt4}) {
    expect_as_loaded(tiny, format, false);
    expect_as_loaded(test::demo_model_dir(), format, false);
  }
}

TEST(WeightSizes, OfBlocksAndExpertsToo) {
  for (const uint32_t experts : {0U, 4U}) {
    const auto path = test::temp_dir() / "blocks.gguf";
    test::write_block_model(
        path,
        [](std::string_view tensor) {
          return tensor.find("down") != std::string_view::npos ||
                         tensor.find("attn_v") != std::string_view::npos
                     ? "Q6_K"
                     : "Q4_K";
        },
        experts);
    expect_as_loaded(path, WeightFormat::kF32, true);
    expect_as_loaded(path, WeightFormat::kInt8, false);
  }
}

}  // namespace
}  // namespace quire::model
