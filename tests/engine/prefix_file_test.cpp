// The prefix cache's file: what is known as one, and what is left alone.
#include "engine/prefix_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/data.h"

namespace quire::engine {
namespace {

using testing::HasSubstr;

constexpr uint32_t kBlockSize = 2;
constexpr uint64_t kBlockBytes = 64;
constexpr std::string_view kEnd = "\nthe end of a quire_prefix_cache\n";

class PrefixFileTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = test::temp_dir() / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
    path_ = dir_ / "file";
    std::filesystem::remove(path_);
  }
  void put(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::string content() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write() const {
    const std::vector<record::PrefixNode> nodes = {{record::PrefixNode::kRoot, 0, {1, 2}, {0}},
                                                   {0, 0, {3, 4}, {1}}};
    std::vector<std::byte> block(kBlockBytes);
    write_prefix_file(path_, key_, kBlockSize, kBlockBytes, nodes, [&](BlockId id) {
      std::fill(block.begin(), block.end(), static_cast<std::byte>(id + 1));
      return std::span<const std::byte>(block);
    });
  }
  /// What check_prefix_file_place says.
  std::string refusal() const {
    try {
      check_prefix_file_place(path_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  PrefixFileKey key_{{"model", "a"}};
  std::filesystem::path dir_;
  std::filesystem::path path_;
};

TEST_F(PrefixFileTest, GivesBackWhatWasWritten) {
  write();
  EXPECT_EQ(refusal(), "");
  EXPECT_TRUE(content().ends_with(kEnd));
  for (const formats::FileAccess access : {formats::FileAccess::kMap, formats::FileAccess::kRead}) {
    const PrefixFile file(path_, key_, kBlockSize, 1, kBlockBytes, access);
    ASSERT_EQ(file.nodes().size(), 2U);
    EXPECT_EQ(file.num_blocks(), 2U);
    EXPECT_EQ(file.num_damaged(), 0U);
    EXPECT_EQ(file.nodes()[1].tokens, (std::vector<TokenId>{3, 4}));
    EXPECT_EQ(file.data(file.nodes()[1].blocks[0])[0], std::byte{2});
  }
}

TEST_F(PrefixFileTest, IsKnownByItsBeginningOrItsEnd) {
  write();
  const std::string whole = content();
  const size_t line = whole.find('\n') + 1;
  const std::string ours[] = {whole.substr(0, line),
                              whole.substr(0, 5),
                              whole.substr(line),
                              std::string(4096, 'x') + whole.substr(4096),
                              "X" + whole.substr(1),
                              std::string(kEnd),
                              "",
                              std::string(200'000, '\0')};
  for (const std::string& text : ours) {
    put(text);
    EXPECT_EQ(refusal(), "") << text.size();
    EXPECT_EQ(content(), text);
    // It cannot be read, or not all of it, and is begun anew.
    write();
    EXPECT_EQ(content(), whole);
  }
}

TEST_F(PrefixFileTest, AnyOtherFileIsLeftAlone) {
  write();
  const std::string whole = content();
  const std::string others[] = {"x", "{}", std::string(70'000, '\0') + "x",
                                std::string(4096, 'x') + whole.substr(4096, whole.size() - 4097),
                                std::string(kEnd) + "and more"};
  for (const std::string& text : others) {
    put(text);
    EXPECT_THAT(refusal(), HasSubstr(path_.string() + ": is not a prefix cache and is not overwritten"));
    EXPECT_THROW(write(), Error);
    EXPECT_EQ(content(), text);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 1);
}

}  // namespace
}  // namespace quire::engine
