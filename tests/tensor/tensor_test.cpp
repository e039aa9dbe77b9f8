#include "tensor/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "tensor/buffer.h"

namespace quire {
namespace {

TEST(DTypes, NamesReadBack) {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64, DType::kU8, DType::kI8}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("torch.bfloat16"), DType::kBF16);
  EXPECT_EQ(parse_dtype("float16"), DType::kF16);
  EXPECT_EQ(parse_dtype("float32"), DType::kF32);
  EXPECT_EQ(parse_dtype("float64"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(DTypes, KnownValues) {
  EXPECT_EQ(f32_to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(f32_to_bf16(-2.5F), 0xc020);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000U)), 0x3f80);  // a tie goes to even
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000U)), 0x3f82);
  EXPECT_EQ(f32_to_f16(1.0F), 0x3c00);
  EXPECT_EQ(f32_to_f16(65504.0F), 0x7bff);
  EXPECT_EQ(f32_to_f16(65519.996F), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00);  // a tie with what would be 65536
  EXPECT_EQ(f32_to_f16(0x1.0p-24F), 0x0001);
  EXPECT_EQ(f32_to_f16(0x1.0p-25F), 0x0000);
  EXPECT_EQ(f32_to_f16(0x1.8p-24F), 0x0002);
  EXPECT_EQ(f32_to_f16(-0.0F), 0x8000);
  EXPECT_EQ(f16_to_f32(0x03ff), 1023 * 0x1.0p-24F);
}

/// Nearest of the 65536 stored values, ties to the even one, found without looking at bits.
template <class Widen, class Narrow>
void expect_nearest(Widen widen, Narrow narrow, float value) {
  const uint16_t bits = narrow(value);
  const double found = widen(bits);
  if (std::isinf(found)) return;
  const double error = std::abs(found - value);
  for (const int step : {-1, 1}) {
    const auto other_bits = static_cast<uint16_t>(bits + step);
    const double other = widen(other_bits);
    if (!std::isfinite(other) || (bits & 0x7fffU) + step > 0x7fffU) continue;
    ASSERT_LE(error, std::abs(other - value)) << value;
    if (error == std::abs(other - value) && error > 0) {
      ASSERT_EQ(bits & 1, 0) << value;
    }
  }
}

TEST(DTypes, ConversionsRoundToTheNearest) {
  SplitMix64 rng(1);
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(rng.next()));
    if (!std::isfinite(value)) continue;
    expect_nearest(bf16_to_f32, f32_to_bf16, value);
    expect_nearest(f16_to_f32, f32_to_f16, value);
    const auto modest =
        static_cast<float>(std::ldexp(unit_interval(rng.next()) - 0.5, static_cast<int>(rng.below(40)) - 26));
    expect_nearest(f16_to_f32, f32_to_f16, modest);
  }
}

TEST(DTypes, EveryStoredValueReadsBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    if (std::isnan(f16_to_f32(bits))) {
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f16_to_f32(bits)))));
    } else {
      ASSERT_EQ(f32_to_f16(f16_to_f32(bits)), bits);
    }
    if (std::isnan(bf16_to_f32(bits))) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(bf16_to_f32(bits)))));
    } else {
      ASSERT_EQ(f32_to_bf16(bf16_to_f32(bits)), bits);
    }
  }
}

/// The pages of these bytes that are in memory.
size_t pages_in_memory(std::span<std::byte> bytes) {
  std::vector<unsigned char> in(bytes.size() / 4096);
  EXPECT_EQ(mincore(bytes.data(), bytes.size(), in.data()), 0);
  return static_cast<size_t>(std::ranges::count_if(in, [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(Buffers, AreInMemoryOnceTouched) {
  ThreadPool pool(3);
  for (const size_t pages : {1U, 5U, 700U, 3000U}) {
    Buffer buffer(pages * 4096);
    buffer.data()[4095] = std::byte{7};
    if (pages > 512) {
      EXPECT_LT(pages_in_memory(buffer.bytes()), pages);  // even if the first is a huge one
    }
    touch(pool, buffer.bytes());
    EXPECT_EQ(pages_in_memory(buffer.bytes()), pages);
    EXPECT_EQ(buffer.data()[4095], std::byte{7});
  }
  touch(pool, {});
}

TEST(Buffers, AreZeroedAlignedAndMove) {
  for (const size_t size : {size_t{1}, size_t{100}, size_t{5} << 20}) {
    Buffer buffer(size);
    ASSERT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U);
    for (size_t i = 0; i < size; i += 61) ASSERT_EQ(buffer.data()[i], std::byte{0});
    buffer.data()[size - 1] = std::byte{7};
    const std::byte* where = buffer.data();
    Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.data(), where);
    EXPECT_EQ(moved.data()[size - 1], std::byte{7});
    EXPECT_EQ(moved.size(), size);
  }
  EXPECT_EQ(Buffer(0).data(), nullptr);
  EXPECT_EQ(Buffer::lasting(0).data(), nullptr);
}

TEST(Buffers, ThatLastLieOneBelowTheOther) {
  constexpr size_t kHuge = size_t{2} << 20;
  constexpr size_t kFreed = 2;
  std::vector<Buffer> made;
  for (size_t i = 0; i < 9; ++i) {
    const size_t size = (i % 2) * kHuge + i * 5000 + 1;
    Buffer& buffer = made.emplace_back(Buffer::lasting(size));
    ASSERT_EQ(buffer.size(), size);
    for (size_t at = 0; at < buffer.size(); at += 61) ASSERT_EQ(buffer.data()[at], std::byte{0});
    std::ranges::fill(buffer.bytes(), static_cast<std::byte>(i + 1));
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t apart = 0;
  for (size_t i = 1; i < made.size(); ++i) {
    if (made[i].data() + (made[i].size() + page - 1) / page * page != made[i - 1].data()) ++apart;
  }
  EXPECT_LE(apart, 3U);  // what lies below may be another's
  const std::span<std::byte> freed = made[kFreed].bytes();
  made[kFreed] = Buffer();
  std::vector<unsigned char> in(freed.size() / page + 1);
  EXPECT_EQ(mincore(freed.data(), freed.size(), in.data()), -1) << "memory was not given back";
  made.erase(made.begin() + kFreed);
  for (size_t i = 0; i < made.size(); ++i) {
    const auto number = static_cast<std::byte>(i < kFreed ? i + 1 : i + 2);
    EXPECT_EQ(std::ranges::count(made[i].bytes(), number), static_cast<ptrdiff_t>(made[i].size()));
  }
}

TEST(Buffers, ThatLastAreMadeAndDestroyedByAnyThread) {
  ThreadPool pool(4);
  pool.parallel_for(200, 1, [&](size_t begin, size_t, uint32_t) {
    Buffer buffer = Buffer::lasting(begin * 20000 + 2);
    const auto number = static_cast<std::byte>(begin);
    buffer.data()[0] = buffer.data()[buffer.size() - 1] = number;
    const Buffer second = Buffer::lasting(size_t{4} << 20);
    EXPECT_EQ(second.data()[0], std::byte{0});
    EXPECT_EQ(buffer.data()[0], number);
    EXPECT_EQ(buffer.data()[buffer.size() - 1], number);
  });
}

TEST(Buffers, ReserveGrowsByHalfAndNeverShrinks) {
  Buffer buffer(1000);
  buffer.reserve(10);
  EXPECT_EQ(buffer.size(), 1000U);
  buffer.reserve(1001);
  EXPECT_EQ(buffer.size(), 1500U);
  buffer.reserve(1 << 20);
  EXPECT_EQ(buffer.size(), size_t{1} << 20);
}

TEST(Buffers, SayHowMuchCannotBeHad) {
  try {
    const Buffer buffer(size_t{1} << 62);
    FAIL() << "the machine has 2^62 bytes";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("4611686018427387904"), std::string::npos) << error.what();
  }
  EXPECT_THROW(Buffer::lasting(size_t{1} << 62), Error);
  EXPECT_THROW(Buffer::lasting(SIZE_MAX), Error);
}

TEST(Tensors, CountTheirElements) {
  const TensorView view{DType::kBF16, {3, 5, 2}, nullptr};
  EXPECT_EQ(view.num_elements(), 30U);
  EXPECT_EQ(view.num_bytes(), 60U);
}

}  // namespace
}  // namespace quire
