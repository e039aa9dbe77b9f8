// Where the machine would raise an exception over a tile, the emulation ends the program and says why.
#include "tests/levels_anywhere/instructions/tiles.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace quire::test {
namespace {

struct alignas(64) Config {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  Config& with(size_t tile, uint8_t its_rows, uint16_t its_row_bytes) {
    rows[tile] = its_rows;
    row_bytes[tile] = its_row_bytes;
    return *this;
  }
};

class TileDeathTest : public testing::Test {
 protected:
  ~TileDeathTest() override { _tile_release(); }
  alignas(64) std::byte memory_[1024] = {};
};

TEST_F(TileDeathTest, OfNoConfiguration) {
  EXPECT_DEATH(_tile_zero(0), "TILEZERO: the tile is not configured");
  const Config config = Config().with(0, 16, 64);
  _tile_loadconfig(&config);
  _tile_zero(0);
  EXPECT_DEATH(_tile_loadd(1, memory_, 64), "TILELOADD: the tile is not configured");
  EXPECT_DEATH(_tile_zero(8), "there is no such tile");
  _tile_release();
  EXPECT_DEATH(_tile_stored(0, memory_, 64), "TILESTORED: the tile is not configured");
}

TEST_F(TileDeathTest, OfAWrongConfiguration) {
  const auto load = [](const Config& config) { _tile_loadconfig(&config); };
  Config other;
  other.palette = 2;
  EXPECT_DEATH(load(other), "no such palette");
  Config reserved;
  reserved.reserved[13] = 1;
  EXPECT_DEATH(load(reserved), "reserved");
  Config resumed;
  resumed.start_row = 1;
  EXPECT_DEATH(load(resumed), "another row");
  EXPECT_DEATH(load(Config().with(0, 17, 64)), "too large");
  EXPECT_DEATH(load(Config().with(0, 16, 65)), "too large");
  EXPECT_DEATH(load(Config().with(3, 16, 0)), "no columns");
  EXPECT_DEATH(load(Config().with(8, 1, 4)), "a tile is configured that there is not");
}

TEST_F(TileDeathTest, OfShapesThatDoNotFit) {
  const auto multiply = [](const Config& config) {
    _tile_loadconfig(&config);
    _tile_dpbssd(0, 1, 2);
    _tile_dpbf16ps(0, 1, 2);
  };
  const Config fits = Config().with(0, 3, 20).with(1, 3, 28).with(2, 7, 20);
  multiply(fits);
  EXPECT_DEATH(multiply(Config(fits).with(0, 4, 20)), "other rows");
  EXPECT_DEATH(multiply(Config(fits).with(0, 3, 24)), "other columns");
  EXPECT_DEATH(multiply(Config(fits).with(2, 8, 20)), "the factors do not fit");
  EXPECT_DEATH(multiply(Config(fits).with(1, 3, 29)), "within four bytes");
  EXPECT_DEATH(_tile_dpbf16ps(1, 1, 2), "two of the tiles are the same");
}

TEST_F(TileDeathTest, ReadsAndWritesItsRowsAlone) {
  const Config config = Config().with(0, 2, 8);
  _tile_loadconfig(&config);
  for (size_t i = 0; i < sizeof(memory_); ++i) memory_[i] = static_cast<std::byte>(i);
  _tile_loadd(0, memory_, 100);
  std::byte to[64];
  for (std::byte& each : to) each = std::byte{0xee};
  _tile_stored(0, to, 16);
  for (size_t i = 0; i < sizeof(to); ++i) {
    const size_t row = i / 16;
    const size_t column = i % 16;
    const bool inside = row < 2 && column < 8;
    EXPECT_EQ(to[i], inside ? static_cast<std::byte>(row * 100 + column) : std::byte{0xee}) << i;
  }
}

}  // namespace
}  // namespace quire::test
