// Files that only their user may read, and that take no other file's place.
#include "base/private_file.h"

#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/support/data.h"

namespace quire {
namespace {

using testing::HasSubstr;

constexpr FileKind kPrivateKind{"list", "{\"list\":"};

class PrivateFileTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = test::temp_dir() / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
    path_ = dir_ / "file";
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::string content() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  mode_t mode() const {
    struct stat facts {};
    EXPECT_EQ(stat(path_.c_str(), &facts), 0);
    return facts.st_mode & 07777;
  }
  static std::string refusal(const std::filesystem::path& path) {
    std::string said;
    try {
      check_private_file(path, kPrivateKind);
    } catch (const Error& error) {
      said = error.what();
    }
    try {
      const PrivateFile out(path, kPrivateKind);
    } catch (const Error& error) {
      EXPECT_EQ(said, error.what());
      return said;
    }
    EXPECT_EQ(said, "");
    return {};
  }

  std::filesystem::path dir_;
  std::filesystem::path path_;
};

TEST_F(PrivateFileTest, OnlyItsUserReadsIt) {
  check_private_file(path_, kPrivateKind);
  EXPECT_FALSE(std::filesystem::exists(path_));
  {
    PrivateFile out(path_, kPrivateKind);
    EXPECT_TRUE(out.write("{\"list\":1}\n") && out.write("more"));
  }
  EXPECT_EQ(mode(), 0600U);
  EXPECT_EQ(content(), "{\"list\":1}\nmore");
}

TEST_F(PrivateFileTest, OneOfItsKindIsOverwrittenAndClosedToOthers) {
  for (const std::string there : {"{\"list\":1}\nlong text", "{\"li", ""}) {
    write(there);
    chmod(path_.c_str(), 0666);
    check_private_file(path_, kPrivateKind);
    EXPECT_EQ(content(), there);
    PrivateFile(path_, kPrivateKind).write("{\"list\":2}");
    EXPECT_EQ(content(), "{\"list\":2}");
    EXPECT_EQ(mode(), 0600U);
  }
}

TEST_F(PrivateFileTest, OneThatIsBeingWrittenIsLeftAlone) {
  {
    PrivateFile first(path_, kPrivateKind);
    first.write("{\"list\": 1}");
    EXPECT_THAT(refusal(path_), HasSubstr("is being written by another program"));
    EXPECT_EQ(content(), "{\"list\": 1}");
  }
  EXPECT_EQ(refusal(path_), "");
}

TEST_F(PrivateFileTest, NothingElseIs) {
  for (const std::string& there :
       {std::string("weights"), std::string("{\"lisp\":1}"), std::string("\0\0\0\0\0\0\0\0\0\0", 10)}) {
    write(there);
    chmod(path_.c_str(), 0644);
    EXPECT_THAT(refusal(path_), HasSubstr(path_.string() + ": is not a list")) << there;
    EXPECT_EQ(content(), there);
    EXPECT_EQ(mode(), 0644U);
  }
  EXPECT_THAT(refusal(dir_), HasSubstr("cannot be written: Is a directory"));
  EXPECT_THAT(refusal(dir_ / "absent" / "file"), HasSubstr("cannot be written: No such file"));
}

TEST_F(PrivateFileTest, ADeviceIsWrittenTo) {
  EXPECT_EQ(refusal("/dev/null"), "");
  PrivateFile full("/dev/full", kPrivateKind);
  EXPECT_FALSE(full.failed());
  EXPECT_FALSE(full.write("x"));
  EXPECT_TRUE(full.failed());
  EXPECT_FALSE(full.write("x"));
}

TEST_F(PrivateFileTest, AnotherUsersIsLeftAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED, only root can give a file away";
  write("{\"list\":1}");
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_THAT(refusal(path_), HasSubstr("another user (uid 12345)"));
  EXPECT_EQ(content(), "{\"list\":1}");
}

}  // namespace
}  // namespace quire
