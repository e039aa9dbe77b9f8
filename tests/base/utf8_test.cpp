#include "base/utf8.h"

#include <random>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Utf8, RepairsMaximalSubparts) {
  // The Unicode standard's own examples (section 3.9, tables 3-8 to 3-11).
  const std::string r = "\uFFFD";
  EXPECT_EQ(repair_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(repair_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("ok é 日 😀"), "ok é 日 😀");
}

TEST(Utf8, RepairInBitsEqualsRepairOfAll) {
  std::mt19937 rng(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    static constexpr std::string_view kLikely = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\xA0\xFF";
    for (size_t i = rng() % 20; i > 0; --i) bytes += kLikely[rng() % kLikely.size()];
    Utf8Repair repair;
    std::string text;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t size = 1 + rng() % 3;
      std::string piece;
      repair.push(std::string_view(bytes).substr(begin, size), piece);
      ASSERT_TRUE(is_valid_utf8(piece));
      text += piece;
      begin += size;
    }
    repair.finish(text);
    ASSERT_EQ(text, repair_utf8(bytes));
    ASSERT_TRUE(is_valid_utf8(text));
  }
}

TEST(Utf8, EveryCharacterThereAndBack) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code == 0xD800) code = 0xE000;
    std::string text = "x";
    append_utf8(text, code);
    ASSERT_TRUE(is_valid_utf8(text));
    ASSERT_EQ(utf8_at(text, 1).code, code);
    ASSERT_EQ(utf8_before(text, text.size()).code, code);
    ASSERT_EQ(utf8_at(text, 1).size, text.size() - 1);
  }
}

TEST(Utf8, CountsCharactersAndCutsBetweenThem) {
  const std::string text = "a\u00e9\u65e5\U0001F600";  // 1, 2, 3 and 4 bytes
  EXPECT_EQ(count_utf8(text), 4U);
  EXPECT_EQ(count_utf8(""), 0U);
  const size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t most = 0; most < std::size(ends); ++most) {
    EXPECT_EQ(utf8_prefix(text, most), text.substr(0, ends[most])) << most;
  }
  EXPECT_TRUE(is_ascii("0123456789 abc"));
  EXPECT_TRUE(is_ascii(""));
  for (size_t at = 0; at < 12; ++at) {
    std::string bytes(12, 'x');
    bytes[at] = '\x80';
    EXPECT_FALSE(is_ascii(bytes)) << at;
  }
}

}  // namespace
}  // namespace quire
