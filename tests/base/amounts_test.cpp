#include "base/amounts.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

TEST(NumberText, SeparatesThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(UINT64_MAX), "18,446,744,073,709,551,615");
}

TEST(NumberText, NamesBytesInPowersOf1024) {
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(uint64_t{3} << 30), "3.0 GiB");
}

TEST(NumberText, ReadsBytesAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("16GiB", "--memory"), uint64_t{16} << 30);
  EXPECT_EQ(parse_bytes("512M", "--memory"), uint64_t{512} << 20);
  EXPECT_EQ(parse_bytes("1.5k", "--memory"), 1536U);
  EXPECT_EQ(parse_bytes("1073741824", "--memory"), uint64_t{1} << 30);
  for (const char* text : {"", "GiB", "-1", "1X", "1GiBs", "nan", "1e300"}) {
    try {
      parse_bytes(text, "--memory");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("--memory: '" + std::string(text) + "'"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace quire
