#include "cli/output_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class OutputFile : public testing::Test {
 protected:
  OutputFile() { fs::create_directories(dir_); }
  ~OutputFile() override { fs::remove_all(dir_); }

  static std::string contents(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
  static std::string refusal(const fs::path& path) {
    try {
      check_output_file(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path dir_ = fs::temp_directory_path() / ("quire-output-file-test-" + std::to_string(::getpid()));
};

TEST_F(OutputFile, IsCheckedWithoutATrace) {
  EXPECT_EQ(refusal(dir_ / "new"), "");
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal("/dev/stdout"), "");
  EXPECT_EQ(files(), 0U);
  EXPECT_THAT(refusal(dir_ / "absent" / "new"), HasSubstr("there is no folder"));
  EXPECT_THAT(refusal(dir_), HasSubstr("it is a folder"));
  std::ofstream(dir_ / "file") << "x";
  EXPECT_THAT(refusal(dir_ / "file" / "new"), HasSubstr("is no folder"));
  EXPECT_EQ(refusal(dir_ / "file"), "");
  EXPECT_EQ(contents(dir_ / "file"), "x");
  fs::create_symlink("absent/target", dir_ / "link");
  EXPECT_THAT(refusal(dir_ / "link"), HasSubstr("there is no folder"));
}

TEST_F(OutputFile, LinksAreFollowedToWhatIsNotThere) {
  fs::create_symlink("second", dir_ / "first");
  fs::create_symlink("absent/target", dir_ / "second");
  EXPECT_EQ(followed(dir_ / "first"), dir_ / "absent/target");
  EXPECT_EQ(followed(dir_ / "no link"), dir_ / "no link");
  fs::create_symlink("circle", dir_ / "circle");
  EXPECT_TRUE(fs::is_symlink(followed(dir_ / "circle")));
}

TEST_F(OutputFile, TakesThePlaceOfAnother) {
  const fs::path path = dir_ / "file";
  write_output_file(path, "first");
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(facts.st_mode & 0777U, 0666U & ~mask);
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("file", dir_ / "link");
  write_output_file(dir_ / "link", "second");
  EXPECT_EQ(contents(path), "second");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  EXPECT_EQ(files(), 2U);
}

TEST_F(OutputFile, LeavesNothingWhereItFails) {
  EXPECT_THROW(write_output_file("/dev/full", "x"), Error);
  EXPECT_THROW(write_output_file(dir_ / "absent" / "file", "x"), Error);
  EXPECT_EQ(files(), 0U);
}

TEST_F(OutputFile, DirectoriesMayBeMadeWithThoseAbove) {
  EXPECT_NO_THROW(check_output_directory(dir_ / "a" / "b"));
  EXPECT_NO_THROW(check_output_directory("some-new-folder"));
  std::ofstream(dir_ / "file") << "x";
  EXPECT_THROW(check_output_directory(dir_ / "file"), Error);
  EXPECT_THROW(check_output_directory(dir_ / "file" / "b"), Error);
  EXPECT_EQ(files(), 1U);
}

}  // namespace
}  // namespace quire::cli
