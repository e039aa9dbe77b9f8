// Passes that are recorded and repeated, against the same passes launched kernel by kernel.
#include "backend/cuda/pass_graphs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/device_model.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/weights.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "formats/model_config.h"
#include "tests/device_on_host/target.h"
#include "tests/device_on_host/tiny_model.h"
#include "tests/support/data.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

/// Numbers on the device, small at first, which each pass doubles.
class Doubled {
 public:
  Doubled() {
    const std::vector<float> first(kCount, std::ldexp(1.0F, kFirst));
    cuda::copy_to_device(numbers_.data(), first.data(), numbers_.size(), stream_.get());
  }

  cuda::Stream stream() const { return stream_.get(); }
  void pass() {
    ++calls_;
    const cuda::AddArgs twice{DType::kF32, numbers_.as<float>(), 2.0F, nullptr, 0.0F, kCount};
    cuda::check(cuda::add(twice, stream_.get()), "add");
  }
  /// How often pass() was called.
  int calls() const { return calls_; }
  /// How often its work was done.
  int done() const {
    float found[kCount] = {};
    cuda::copy_to_host(found, numbers_.data(), sizeof(found), stream_.get());
    cuda::synchronize(stream_.get());
    return std::ilogb(found[0]) - kFirst;
  }

 private:
  static constexpr size_t kCount = 4;
  static constexpr int kFirst = -100;  // the power of two
  cuda::OwnStream stream_;
  cuda::DeviceBuffer numbers_{kCount * sizeof(float), "numbers"};
  int calls_ = 0;
};

cuda::PassShape shape_of(uint32_t rows) { return {.rows = rows, .table_stride = 4, .spans = {2}}; }

TEST(PassGraphs, RecordAShapeThatComesAgain) {
  for (uint64_t seed = 0; seed < kOrders; ++seed) {
    Device device(seed);
    Doubled doubled;
    cuda::PassGraphs graphs(doubled.stream());
    for (int time = 1; time <= 5; ++time) {
      graphs.run(shape_of(1), [&] { doubled.pass(); });
      EXPECT_EQ(doubled.calls(), std::min(time, 2));
      EXPECT_EQ(doubled.done(), time);
    }
    ASSERT_TRUE(device.findings().empty()) << device.report();
  }
}

TEST(PassGraphs, TellShapesApart) {
  Device device(1);
  Doubled doubled;
  cuda::PassGraphs graphs(doubled.stream());
  const int place = 0;
  std::vector<cuda::PassShape> shapes(5, shape_of(1));
  shapes[1].rows = 2;
  shapes[2].table_stride = 8;
  shapes[3].spans = {3};
  shapes[4].late_tokens = &place;
  for (const cuda::PassShape& shape : shapes) graphs.run(shape, [&] { doubled.pass(); });
  EXPECT_EQ(doubled.calls(), 5);
  for (const cuda::PassShape& shape : shapes) graphs.run(shape, [] {});
  for (const cuda::PassShape& shape : shapes) graphs.run(shape, [&] { doubled.pass(); });
  EXPECT_EQ(doubled.calls(), 5);
  EXPECT_EQ(doubled.done(), 5);
}

TEST(PassGraphs, ForgetTheShapeThatWasNotMetForLongest) {
  Device device(1);
  Doubled doubled;
  cuda::PassGraphs graphs(doubled.stream());
  const auto calls_of = [&](uint32_t rows) {
    const int before = doubled.calls();
    graphs.run(shape_of(rows), [&] { doubled.pass(); });
    return doubled.calls() - before;
  };
  for (int time = 0; time < 2; ++time) {
    for (uint32_t rows = 1; rows <= cuda::PassGraphs::kMost; ++rows) EXPECT_EQ(calls_of(rows), 1);
  }
  EXPECT_EQ(calls_of(1), 0);
  EXPECT_EQ(calls_of(1000), 1);  // in the place of 2
  EXPECT_EQ(calls_of(1), 0);
  EXPECT_EQ(calls_of(3), 0);
  EXPECT_EQ(calls_of(2), 1);
  EXPECT_EQ(doubled.done(), static_cast<int>(2 * cuda::PassGraphs::kMost) + 5);
}

/// A pass that waits for the device, which nothing that is recorded may.
TEST(PassGraphs, GoOnWithoutWhereTheDeviceRefuses) {
  Device device(1);
  Doubled doubled;
  cuda::PassGraphs graphs(doubled.stream());
  const auto pass = [&] {
    doubled.pass();
    cuda::synchronize(doubled.stream());
  };
  testing::internal::CaptureStderr();
  for (int time = 1; time <= 4; ++time) {
    graphs.run(shape_of(1), pass);
    EXPECT_EQ(doubled.done(), time);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  const size_t first = said.find("launched one by one");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("launched one by one", first + 1), std::string::npos) << said;
  EXPECT_EQ(doubled.calls(), 5);  // one of which was to be recorded
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

TEST(PassGraphs, LeaveTheDefaultStreamAlone) {
  Device device(1);
  int calls = 0;
  cuda::PassGraphs graphs(nullptr);
  for (int time = 0; time < 4; ++time) graphs.run(shape_of(1), [&] { ++calls; });
  EXPECT_EQ(calls, 4);
}

/// A model whose blocks all have K/V of chance, so that contexts are long at once.
class OnStream {
 public:
  static constexpr uint32_t kBlock = 16;
  static constexpr uint32_t kPositions = 1100;
  static constexpr uint32_t kBlocks = 2 * (kPositions / kBlock + 1);

  OnStream(const std::filesystem::path& model, DType dtype, cuda::Stream stream)
      : config_(formats::load_model_config(model)),
        weights_(cuda::load_weights(model, config_, dtype, pool_, stream)),
        gemm_(cublaslt(), stream),
        model_({.dtype = dtype, .limits = {.rows = 8, .seqs = 2, .positions = kPositions, .logit_rows = 2}},
               config_, weights_, gemm_, {.num_blocks = kBlocks, .num_host_blocks = 0, .block_size = kBlock},
               stream),
        late_(4 * sizeof(TokenId), "late tokens") {
    SplitMix64 rng(3);
    const size_t element = dtype_bytes(dtype);
    std::vector<std::byte> block(model_.cache().whole_block_bytes());
    for (BlockId i = 0; i < kBlocks; ++i) {
      for (size_t at = 0; at < block.size(); at += element) {
        const auto value = static_cast<float>(unit_interval(rng.next()) - 0.5);
        const uint16_t half = f32_to_bf16(value);
        std::memcpy(&block[at], dtype == DType::kF32 ? static_cast<const void*>(&value) : &half, element);
      }
      model_.write(i, block.data());
    }
    const TokenId tokens[] = {3, 1, 4, 1};
    cuda::copy_to_device(late_.data(), tokens, sizeof(tokens), stream);
  }

  /// The logits of the next token of sequences with `lengths` tokens, the first of which is known to the
  /// device alone if `late`.
  std::vector<float> decode(const std::vector<uint32_t>& lengths, bool late) {
    std::vector<std::vector<std::vector<BlockId>>> tables;
    std::vector<decoder::BatchSeq> seqs;
    std::vector<TokenId> tokens;
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < lengths.size(); ++i) {
      std::vector<BlockId> table(lengths[i] / kBlock + 1);
      for (uint32_t b = 0; b < table.size(); ++b) table[b] = (b * 2 + i) % kBlocks;
      tables.emplace_back(model_.cache().num_groups(), table);
      tokens.push_back(static_cast<TokenId>(lengths[i] % 50 + i));
      rows.push_back(i);
    }
    for (uint32_t i = 0; i < lengths.size(); ++i) seqs.push_back({1, lengths[i], tables[i]});
    const std::vector<cuda::LateRow> late_rows(late ? 1 : 0, cuda::LateRow{.row = 0, .place = 2});
    model_.compute(tokens, seqs, late_rows, late ? late_.as<TokenId>() : nullptr);
    const std::span<const float> logits = model_.logits(rows);
    return {logits.begin(), logits.end()};
  }

 private:
  ThreadPool pool_{1};
  model::ModelConfig config_;
  cuda::ModelWeights weights_;
  cuda::Gemm gemm_;
  cuda::DeviceModel model_;
  cuda::DeviceBuffer late_;
};

/// Steps of one and of two sequences, whose contexts grow across spans, blocks and windows; `repeats` of them
/// are repeated.
void expect_same_bits(const std::filesystem::path& model, DType dtype, [[maybe_unused]] uint64_t repeats) {
  SCOPED_TRACE(model.string());
  struct Step {
    std::vector<uint32_t> lengths;
    bool late = false;
  };
  std::vector<Step> steps;
  for (const uint32_t first : {30U, 1022U, 1050U}) {
    for (uint32_t i = 0; i < 4; ++i) steps.push_back({{first + i}, i % 2 == 1});
    for (uint32_t i = 0; i < 4; ++i) steps.push_back({{17 + i, first + i}, i % 2 == 0});
    for (uint32_t i = 0; i < 2; ++i) steps.push_back({{first + i, 1030 + i}});
  }
  Device device(5);
  std::vector<std::vector<float>> expected;
  OnStream one_by_one(model, dtype, nullptr);
  for (const Step& step : steps) expected.push_back(one_by_one.decode(step.lengths, step.late));
  const cuda::OwnStream stream;
  OnStream repeated(model, dtype, stream.get());
  testing::internal::CaptureStderr();
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(repeated.decode(steps[i].lengths, steps[i].late), expected[i]) << "step " << i;
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");  // as where nothing can be recorded
#ifndef QUIRE_REAL_DEVICE
  EXPECT_EQ(device.streams().repeats(), repeats);
#endif
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

/// The models' layers see all tokens, or 20 or 16 of them, and some have experts; in f32, attention is
/// without tensor cores. Where the tokens of a window lie in two spans, it is another launch than where they
/// lie in one.
TEST(PassGraphs, ChangeNoBit) {
  const std::filesystem::path experts = temp_dir();
  write_tiny_model_of_experts(experts);
  expect_same_bits(experts, DType::kBF16, 22);
  expect_same_bits("tests/model/fixtures/gemma3-one-kv", DType::kF32, 22);
  QUIRE_NEEDS_DATA("golden-models/qwen3");
  expect_same_bits(data_dir() / "golden-models/qwen3", DType::kBF16, 22);
  expect_same_bits(data_dir() / "golden-models/mistral-window", DType::kBF16, 18);
}

}  // namespace
}  // namespace quire::test::fibers
