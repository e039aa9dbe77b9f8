#include "decoder/forward_pass.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.h"

namespace quire::decoder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Writes down what is asked of it.
class Listing final : public Ops {
 public:
  std::set<Norm> norms;  // that all layers have
  std::vector<std::string> calls;
  std::vector<uint32_t> positions;  // of the last batch
  std::vector<float> row = {1.0F, 2.0F};

  void begin(const Batch& batch) override {
    calls.clear();
    positions.assign(batch.positions.begin(), batch.positions.end());
  }
  bool has(Norm norm, uint32_t /*layer*/) const override { return norms.contains(norm); }
  void norm(Norm norm, uint32_t layer, Rows from, Rows to) override {
    note("norm {} {} {}>{}", static_cast<int>(norm), layer, name(from), name(to));
  }
  void add(float factor) override { note("add {}", factor); }
  void embed(float scale) override { note("embed {}", scale); }
  void project_qkv(uint32_t layer, Rows from) override { note("qkv {} {}", layer, name(from)); }
  void norm_qk(uint32_t layer) override { note("norm_qk {}", layer); }
  void rotate(const Rotation& rotation) override {
    note("rotate {} {} {}", static_cast<int>(rotation.kind), rotation.rotary, rotation.positions);
  }
  void attend(uint32_t layer, uint32_t group, const AttentionScores& scores) override {
    note("attend {} {} {} {} {}", layer, group, scores.scale, scores.window, scores.soft_cap);
  }
  void project_out(uint32_t layer) override { note("out {}", layer); }
  void feed_forward(uint32_t layer, Rows from) override { note("ffn {} {}", layer, name(from)); }
  std::span<const float> hidden(std::span<const uint32_t> rows) override {
    note("hidden {}", rows.size());
    return row;
  }
  std::span<const float> logits(std::span<const uint32_t> rows, float scale, float cap) override {
    note("logits {} {} {}", rows.size(), scale, cap);
    return row;
  }

 private:
  template <class... Args>
  void note(fmt::format_string<Args...> text, Args&&... args) {
    calls.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  static const char* name(Rows rows) {
    constexpr const char* kNames[] = {"residual", "normed", "qkv", "attended", "added"};
    return kNames[static_cast<size_t>(rows)];
  }
};

model::ModelConfig small_config() {
  model::ModelConfig config;
  config.vocab_size = 10;
  config.hidden_size = 8;
  config.num_layers = 1;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  config.max_positions = 100;
  config.windows = {0};
  return config;
}

/// A step of 3 tokens of a new sequence and one at position 20, in blocks of 16.
class ForwardPassTest : public testing::Test {
 protected:
  void compute() { compute(DType::kF32); }
  void compute(DType dtype) {
    const model::KvGroups groups = model::group_layers(config_);
    ForwardPass pass(config_, dtype, 50);
    pass.compute(ops_, {groups, 4, 16}, tokens_, seqs_);
    logit_rows_.assign(pass.logit_rows().begin(), pass.logit_rows().end());
  }
  std::string error() {
    try {
      compute();
    } catch (const Error& failed) {
      return failed.what();
    }
    return {};
  }

  model::ModelConfig config_ = small_config();
  Listing ops_;
  std::vector<std::vector<BlockId>> first_ = {{3}};
  std::vector<std::vector<BlockId>> second_ = {{0, 2}};
  std::vector<TokenId> tokens_ = {1, 2, 3, 4};
  std::vector<BatchSeq> seqs_ = {{3, 0, first_, 2}, {1, 20, second_, 1}};
  std::vector<uint32_t> logit_rows_;
};

TEST_F(ForwardPassTest, NormsBeforeEachHalf) {
  ops_.norms = {Norm::kAttention, Norm::kFeedForward};
  config_.num_layers = 2;
  config_.windows = {0, 0};
  compute();
  EXPECT_THAT(ops_.calls, ElementsAre("embed 1", "norm 0 0 residual>normed",                           //
                                      "qkv 0 normed", "rotate 1 4 21", "attend 0 0 0.5 0 0", "out 0",  //
                                      "add 1", "norm 2 0 residual>normed", "ffn 0 normed",             //
                                      "add 1", "norm 0 1 residual>normed",                             //
                                      "qkv 1 normed", "rotate 1 4 21", "attend 1 0 0.5 0 0", "out 1",  //
                                      "add 1", "norm 2 1 residual>normed", "ffn 1 normed", "add 1"));
  EXPECT_THAT(ops_.positions, ElementsAre(0, 1, 2, 20));
  EXPECT_THAT(logit_rows_, ElementsAre(1, 2, 3));
}

TEST_F(ForwardPassTest, NormsBehindEachHalf) {
  ops_.norms = {Norm::kPostAttention, Norm::kPostFeedForward};
  config_.qk_norm = model::QkNorm::kWhole;
  compute();
  EXPECT_THAT(ops_.calls, ElementsAre("embed 1", "qkv 0 residual", "norm_qk 0", "rotate 1 4 21",  //
                                      "attend 0 0 0.5 0 0", "out 0", "norm 1 0 added>added", "add 1",
                                      "ffn 0 residual", "norm 3 0 added>added", "add 1"));
}

TEST_F(ForwardPassTest, FactorsWindowsAndCaps) {
  config_.embedding_scale = 1.001;
  config_.round_embedding_scale = true;
  config_.residual_scale = 0.25;
  config_.attention_scale = 2;
  config_.attention_soft_cap = 50;
  config_.windows = {5};
  compute();
  EXPECT_THAT(ops_.calls, ElementsAre("embed 1.001", "qkv 0 residual", "rotate 1 4 21", "attend 0 0 2 5 50",
                                      "out 0", "add 0.25", "ffn 0 residual", "add 0.25"));
  compute(DType::kBF16);
  EXPECT_EQ(ops_.calls.front(), "embed 1");  // 1.001 as bf16
}

TEST_F(ForwardPassTest, RopeByLayer) {
  config_.num_layers = 4;
  config_.windows = {0, 4, 0, 4};
  config_.layer_ropes = {model::LayerRope::kNone, model::LayerRope::kLocal, model::LayerRope::kMain,
                         model::LayerRope::kLocal};
  config_.local_rope = config_.rope;
  config_.local_rope->partial = 0.5;
  std::vector<std::vector<BlockId>> two = {{0}, {1}};
  seqs_ = {{4, 0, two, 0}};
  compute();
  std::vector<std::string> rotations;
  for (const std::string& call : ops_.calls) {
    if (call.starts_with("rotate") || call.starts_with("attend")) rotations.push_back(call);
  }
  EXPECT_THAT(rotations,
              ElementsAre("attend 0 0 0.5 0 0", "rotate 2 2 4", "attend 1 1 0.5 4 0", "rotate 1 4 4",
                          "attend 2 0 0.5 0 0", "rotate 2 2 4", "attend 3 1 0.5 4 0"));
}

TEST_F(ForwardPassTest, AsksTheDeviceOnlyForRowsThatAreWanted) {
  config_.logit_scale = 0.5;
  config_.logit_soft_cap = 30;
  const ForwardPass pass(config_, DType::kF32, 50);
  EXPECT_TRUE(pass.hidden(ops_, {}).empty());
  EXPECT_TRUE(pass.logits(ops_, {}).empty());
  const std::vector<uint32_t> rows = {1, 3};
  EXPECT_EQ(pass.hidden(ops_, rows).size(), 2U);
  EXPECT_EQ(pass.logits(ops_, rows).size(), 2U);
  EXPECT_THAT(ops_.calls, ElementsAre("hidden 2", "logits 2 0.5 30"));
}

TEST_F(ForwardPassTest, RefusesWhatDoesNotFit) {
  const auto refuses = [&](const std::function<void()>& spoil) {
    const auto seqs = seqs_;
    const auto tokens = tokens_;
    const auto table = second_;
    spoil();
    const std::string why = error();
    EXPECT_TRUE(ops_.calls.empty());
    EXPECT_TRUE(logit_rows_.empty());
    seqs_ = seqs;
    tokens_ = tokens;
    second_ = table;
    seqs_[1].block_tables = second_;
    return why;
  };
  const auto does_not_fit = HasSubstr("does not fit its blocks or the model's 50 positions");
  EXPECT_THAT(refuses([&] { seqs_[1].first_position = 32; }), does_not_fit);
  EXPECT_THAT(refuses([&] { seqs_[1].first_position = 50; }), does_not_fit);
  EXPECT_THAT(refuses([&] { seqs_[0].logit_rows = 4; }), does_not_fit);
  EXPECT_THAT(refuses([&] { seqs_[0].block_tables = {}; }), does_not_fit);
  EXPECT_THAT(refuses([&] { second_[0][1] = 4; }), does_not_fit);
  EXPECT_THAT(refuses([&] { second_[0][0] = kNoBlock; }), does_not_fit);
  EXPECT_THAT(refuses([&] { tokens_.push_back(0); }), HasSubstr("5 tokens for 4 places"));
  EXPECT_THAT(refuses([&] { tokens_[2] = 10; }), HasSubstr("token 10 is not in the vocabulary of 10"));
  EXPECT_THAT(refuses([&] { tokens_[2] = -1; }), HasSubstr("token -1 is not in the vocabulary of 10"));
  EXPECT_EQ(error(), "");
}

TEST_F(ForwardPassTest, ReadsNoBlockBehindTheWindow) {
  config_.windows = {4};
  second_[0][0] = kNoBlock;  // positions 0 to 15, of which the query at 20 reads none
  EXPECT_EQ(error(), "");
  seqs_[1].first_position = 18;  // reads 15
  EXPECT_THAT(error(), HasSubstr("does not fit"));
}

}  // namespace
}  // namespace quire::decoder
