// What all the other tests of this program stand on: that it has each level, of the emulated instructions.
#include <vector>

#include <gtest/gtest.h>

#include "kernels/context.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/x86/pack_tables.h"
#include "kernels/cpu/x86/tables.h"
#include "tests/levels_anywhere/features.h"

namespace quire::test {
namespace {

using kernels::IsaLevel;

TEST(Levels, AreAllThere) {
  if (!emulated_features().avx512) GTEST_SKIP() << "this machine has no AVX2";
  EXPECT_EQ(kernels::available_isa_levels(),
            (std::vector<IsaLevel>{IsaLevel::kReference, IsaLevel::kAvx2Vnni, IsaLevel::kAvx512,
                                   IsaLevel::kAvx512Vnni, IsaLevel::kAvx512Bf16, IsaLevel::kAmx}));
  for (const IsaLevel level : kernels::available_isa_levels()) {
    EXPECT_EQ(kernels::cpu::native_table(level) == nullptr, level == IsaLevel::kReference);
  }
}

TEST(Levels, HaveKernelsOfTheirOwn) {
  if (!emulated_features().avx512) GTEST_SKIP() << "this machine has no AVX2";
  const auto run = [](IsaLevel level, WeightFormat format) {
    return kernels::cpu::table(level).matmul[static_cast<size_t>(format)].run;
  };
  EXPECT_EQ(run(IsaLevel::kAvx2Vnni, WeightFormat::kInt8), kernels::cpu::avx2_vnni::kInt8.run);
  EXPECT_EQ(run(IsaLevel::kAvx2Vnni, WeightFormat::kInt4), kernels::cpu::avx2_vnni::kInt4.run);
  for (size_t i = 0; i < 4; ++i) {
    const auto format = static_cast<WeightFormat>(static_cast<size_t>(WeightFormat::kQ8_0) + i);
    EXPECT_EQ(run(IsaLevel::kAvx2Vnni, format), kernels::cpu::avx2_vnni::kBlocks[i].run);
  }
  EXPECT_EQ(run(IsaLevel::kAvx512Vnni, WeightFormat::kInt8), kernels::cpu::avx512_vnni::kInt8.run);
  EXPECT_EQ(run(IsaLevel::kAvx512Bf16, WeightFormat::kBF16), kernels::cpu::avx512_bf16::kBf16.run);
  EXPECT_EQ(run(IsaLevel::kAmx, WeightFormat::kBF16), kernels::cpu::amx::kBf16.run);
  EXPECT_EQ(run(IsaLevel::kAmx, WeightFormat::kInt4), kernels::cpu::amx::kInt4.run);
  EXPECT_NE(run(IsaLevel::kAvx512, WeightFormat::kInt8), run(IsaLevel::kAvx512Vnni, WeightFormat::kInt8));
  EXPECT_NE(run(IsaLevel::kAvx512Vnni, WeightFormat::kInt8), run(IsaLevel::kAmx, WeightFormat::kInt8));
}

TEST(Levels, HaveAttentionOfTheirOwn) {
  if (!emulated_features().avx512) GTEST_SKIP() << "this machine has no AVX2";
  const auto of = [](IsaLevel level, DType dtype) {
    return kernels::cpu::table(level).attention[kernels::cpu::kv_index(dtype)];
  };
  EXPECT_EQ(of(IsaLevel::kAvx2Vnni, DType::kI8), kernels::cpu::avx2_vnni::kInt8Attention);
  EXPECT_EQ(of(IsaLevel::kAvx512Vnni, DType::kI8), kernels::cpu::avx512_vnni::kInt8Attention);
  EXPECT_EQ(of(IsaLevel::kAvx512Bf16, DType::kI8), kernels::cpu::avx512_bf16::kInt8Attention);
  EXPECT_EQ(of(IsaLevel::kAvx512Bf16, DType::kBF16), kernels::cpu::avx512_bf16::kBf16Attention);
  EXPECT_EQ(of(IsaLevel::kAmx, DType::kI8), kernels::cpu::amx::kInt8Attention);
  EXPECT_EQ(of(IsaLevel::kAmx, DType::kBF16), kernels::cpu::amx::kBf16Attention);
  EXPECT_EQ(of(IsaLevel::kAvx512Vnni, DType::kBF16), of(IsaLevel::kAvx512, DType::kBF16));
}

// A machine with AVX-VNNI may have no AVX-512: all else must be of AVX2.
TEST(Levels, WithoutAvx512HaveNothingOfIt) {
  if (!emulated_features().avx512) GTEST_SKIP() << "this machine has no AVX2";
  const kernels::cpu::KernelTable& table = kernels::cpu::table(IsaLevel::kAvx2Vnni);
  const kernels::cpu::KernelTable& avx2 = kernels::cpu::avx2::kTable;
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16}) {
    const auto i = static_cast<size_t>(format);
    EXPECT_EQ(table.matmul[i].run, avx2.matmul[i].run);
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const size_t i = kernels::cpu::kv_index(dtype);
    EXPECT_EQ(table.attention[i], avx2.attention[i]);
  }
  EXPECT_EQ(table.quantize, avx2.quantize);
  EXPECT_EQ(table.merge_spans, avx2.merge_spans);
  EXPECT_EQ(table.rms_norm, avx2.rms_norm);
  EXPECT_EQ(table.rope, avx2.rope);
  EXPECT_EQ(table.route, avx2.route);
  EXPECT_EQ(kernels::cpu::native_pack_table(IsaLevel::kAvx2Vnni), &kernels::cpu::avx2::kPackTable);
}

// Where VDPBF16PS is slower than VFMADD, its level is before the one without it.
TEST(Levels, AreInTheOrderOfTheirSpeed) {
  if (!emulated_features().avx512) GTEST_SKIP() << "this machine has no AVX2";
  emulated_features().bf16_dot_is_slow = true;
  const std::vector<IsaLevel> slow = kernels::cpu::native_levels();
  emulated_features().bf16_dot_is_slow = false;
  EXPECT_EQ(slow, (std::vector<IsaLevel>{IsaLevel::kAvx2Vnni, IsaLevel::kAvx512, IsaLevel::kAvx512Bf16,
                                         IsaLevel::kAvx512Vnni, IsaLevel::kAmx}));
  EXPECT_EQ(kernels::cpu::native_levels(),
            (std::vector<IsaLevel>{IsaLevel::kAvx2Vnni, IsaLevel::kAvx512, IsaLevel::kAvx512Vnni,
                                   IsaLevel::kAvx512Bf16, IsaLevel::kAmx}));
}

}  // namespace
}  // namespace quire::test
