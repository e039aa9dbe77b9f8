#include "formats/ggml_types.h"

#include <bit>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "formats/safetensors.h"

namespace quire::formats {
namespace {

// Made by the script beside it with the gguf package.
Safetensors fixture() { return Safetensors::open("tests/formats/fixtures/ggml_types.safetensors"); }

class GgmlTypes : public testing::TestWithParam<const char*> {};

const GgmlType& named(std::string_view name) {
  for (const GgmlType& type : ggml_types()) {
    if (type.name == name) return type;
  }
  throw std::runtime_error("no such type");
}

TEST_P(GgmlTypes, DequantizesToTheBitAsGgmlDoes) {
  const Safetensors file = fixture();
  const GgmlType& type = named(GetParam());
  const TensorView& blocks = file.at(fmt::format("{}.blocks", GetParam()));
  const TensorView& expected = file.at(fmt::format("{}.values", GetParam()));
  const size_t count = expected.num_elements();
  ASSERT_EQ(blocks.num_bytes() / type.block_bytes * type.block_values, count);
  ASSERT_GE(count, 128U);
  std::vector<float> values(count, 1e30F);
  dequantize(type, blocks.data, count, values.data());
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected.as<float>()[i]))
        << type.name << " value " << i << ": " << values[i] << ", expected " << expected.as<float>()[i];
  }
}

TEST_P(GgmlTypes, NeedsNoAlignment) {
  const Safetensors file = fixture();
  const GgmlType& type = named(GetParam());
  const TensorView& blocks = file.at(fmt::format("{}.blocks", GetParam()));
  const TensorView& expected = file.at(fmt::format("{}.values", GetParam()));
  std::vector<std::byte> shifted(blocks.num_bytes() + 1);
  std::memcpy(shifted.data() + 1, blocks.data, blocks.num_bytes());
  std::vector<float> values(expected.num_elements());
  dequantize(type, shifted.data() + 1, values.size(), values.data());
  EXPECT_EQ(std::memcmp(values.data(), expected.data, expected.num_bytes()), 0);
}

INSTANTIATE_TEST_SUITE_P(Each, GgmlTypes,
                         testing::Values("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K",
                                         "Q5_K", "Q6_K", "IQ4_NL"));

TEST(GgmlTypesTable, HasEachNumberOnce) {
  for (const GgmlType& type : ggml_types()) {
    EXPECT_EQ(find_ggml_type(type.id), &type) << type.name;
    EXPECT_GT(type.block_bytes, 0U);
  }
  EXPECT_EQ(find_ggml_type(4), nullptr);
  EXPECT_EQ(find_ggml_type(UINT32_MAX), nullptr);
}

TEST(QuantizeQ80, IsGgmls) {
  const Safetensors file = fixture();
  const TensorView& values = file.at("quantized.values");
  const TensorView& expected = file.at("quantized.blocks");
  std::vector<std::byte> blocks(expected.num_bytes());
  quantize_q8_0(values.as<float>(), values.num_elements(), blocks.data());
  for (size_t i = 0; i < blocks.size(); ++i) ASSERT_EQ(blocks[i], expected.data[i]) << "byte " << i;
}

TEST(QuantizeQ80, TakesAnyNumber) {
  std::vector<float> values(64, 1.0F);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[40] = std::numeric_limits<float>::infinity();
  std::vector<std::byte> blocks(68);
  quantize_q8_0(values.data(), values.size(), blocks.data());
  std::vector<float> back(64);
  dequantize(named("Q8_0"), blocks.data(), 64, back.data());
  EXPECT_EQ(back[3], 0.0F);
  EXPECT_NEAR(back[4], 1.0F, 1e-3F);
}

}  // namespace
}  // namespace quire::formats
