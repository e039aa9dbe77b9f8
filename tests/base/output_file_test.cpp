#include "base/output_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr FileKind kKind{"list", "{\"list\":"};
constexpr FileKind kLater{"late list", "{\"list\":", 8};

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() { fs::create_directories(dir_); }
  ~OutputFileTest() override { fs::remove_all(dir_); }

  static std::string contents(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
  template <typename Work>
  static std::string error_of(Work&& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  static std::string refusal(const fs::path& path) {
    return error_of([&] { check_output_file(path); });
  }
  static std::string same(const fs::path& one, const fs::path& other) {
    const OutputFile outputs[] = {{"--one", one}, {"--other", other}};
    return error_of([&] { refuse_same_file(outputs); });
  }

  fs::path dir_ = fs::temp_directory_path() / ("quire-output-file-test-" + std::to_string(::getpid()));
};

TEST_F(OutputFileTest, IsCheckedWithoutATrace) {
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

TEST_F(OutputFileTest, LinksAreFollowedToWhatIsNotThere) {
  fs::create_symlink("second", dir_ / "first");
  fs::create_symlink("absent/target", dir_ / "second");
  EXPECT_EQ(followed(dir_ / "first"), dir_ / "absent/target");
  EXPECT_EQ(followed(dir_ / "no link"), dir_ / "no link");
  fs::create_symlink("circle", dir_ / "circle");
  EXPECT_TRUE(fs::is_symlink(followed(dir_ / "circle")));
}

TEST_F(OutputFileTest, TakesThePlaceOfAnother) {
  const fs::path path = dir_ / "file";
  write_output_file(path, kKind, "{\"list\":1}");
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(facts.st_mode & 0777U, 0666U & ~mask);
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("file", dir_ / "link");
  write_output_file(dir_ / "link", kKind, "second");
  EXPECT_EQ(contents(path), "second");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  EXPECT_EQ(files(), 2U);
}

TEST_F(OutputFileTest, LeavesNothingWhereItFails) {
  EXPECT_THROW(write_output_file("/dev/full", kKind, "x"), Error);
  EXPECT_THROW(write_output_file(dir_ / "absent" / "file", kKind, "x"), Error);
  EXPECT_EQ(files(), 0U);
}

TEST_F(OutputFileTest, TakesThePlaceOfItsOwnKindAlone) {
  const fs::path path = dir_ / "file";
  for (const std::string there : {"", "{\"li", "{\"list\":7}\nmore"}) {
    std::ofstream(path) << there;
    EXPECT_NO_THROW(check_output_file(path, kKind));
    EXPECT_EQ(contents(path), there);
    write_output_file(path, kKind, "{\"list\":1}");
    EXPECT_EQ(contents(path), "{\"list\":1}");
  }
  for (const std::string there : {"x", "{\"lisp\":7}", "\n{\"list\":7}"}) {
    std::ofstream(path) << there;
    const std::string said = error_of([&] { check_output_file(path, kKind); });
    EXPECT_THAT(said, HasSubstr(path.string() + ": is not a list and is not overwritten"));
    EXPECT_EQ(error_of([&] { write_output_file(path, kKind, "{}"); }), said);
    EXPECT_EQ(contents(path), there);
  }
  EXPECT_EQ(files(), 1U);
  EXPECT_NO_THROW(check_output_file("", kKind));
  EXPECT_NO_THROW(check_output_file("/dev/null", kKind));
}

TEST_F(OutputFileTest, AKindMayBeToldBehindItsFirstBytes) {
  const fs::path path = dir_ / "file";
  for (const std::string there : {"", "12345678{", "12345678{\"list\":7}"}) {
    std::ofstream(path) << there;
    EXPECT_NO_THROW(check_output_file(path, kLater)) << there;
  }
  for (const std::string there : {"1", "12345678", "12345678x", "{\"list\":7}"}) {
    std::ofstream(path) << there;
    EXPECT_THROW(check_output_file(path, kLater), Error) << there;
  }
}

TEST_F(OutputFileTest, ReplacesAnythingWithTheModeThatIsGiven) {
  const fs::path path = dir_ / "file";
  std::ofstream(path) << "anything";
  replace_file(path, "private", 0600);
  EXPECT_EQ(contents(path), "private");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  replace_file(dir_ / "new", "private", 0600);
  EXPECT_EQ(fs::status(dir_ / "new").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(OutputFileTest, IsOneWhateverItsNames) {
  fs::create_directory(dir_ / "folder");
  fs::create_symlink("folder", dir_ / "linked");
  fs::create_symlink("folder/new", dir_ / "first");
  fs::create_symlink("first", dir_ / "second");
  const fs::path place = dir_ / "folder" / "new";
  for (int exists = 0; exists < 2; ++exists) {
    for (const fs::path& name :
         {place, dir_ / "linked" / "new", dir_ / "first", dir_ / "second", dir_ / "folder/../folder/new"}) {
      EXPECT_THAT(same(place, name), HasSubstr("--other: " + name.string() + " is also the file of --one"));
    }
    EXPECT_EQ(same(place, dir_ / "new"), "");
    EXPECT_EQ(same(place, "/dev/null"), "");
    EXPECT_EQ(same(place, ""), "");
    std::ofstream(place) << "x";
  }
  fs::create_hard_link(place, dir_ / "hard");
  EXPECT_NE(same(place, dir_ / "hard"), "");
  EXPECT_EQ(same("/dev/null", "/dev/null"), "");
  EXPECT_EQ(same("", ""), "");
}

TEST_F(OutputFileTest, DirectoriesMayBeMadeWithThoseAbove) {
  EXPECT_NO_THROW(check_output_directory(dir_ / "a" / "b"));
  EXPECT_NO_THROW(check_output_directory("some-new-folder"));
  std::ofstream(dir_ / "file") << "x";
  EXPECT_THROW(check_output_directory(dir_ / "file"), Error);
  EXPECT_THROW(check_output_directory(dir_ / "file" / "b"), Error);
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputFileTest, OneThatGrowsAppearsWhenItIsComplete) {
  const fs::path path = dir_ / "out";
  std::ofstream(path) << "before";
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  {
    GrowingFile given_up(path);
    given_up.write("a part");
    EXPECT_EQ(contents(path), "before");
  }
  EXPECT_EQ(contents(path), "before");
  EXPECT_EQ(files(), 1U);
  GrowingFile file(path);
  file.write("one ");
  file.write("two");
  EXPECT_EQ(contents(path), "before");
  file.finish();
  EXPECT_EQ(contents(path), "one two");
  EXPECT_EQ(files(), 1U);
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0640U);
}

TEST_F(OutputFileTest, OneThatGrowsTakesNobodysName) {
  const fs::path path = dir_ / "out";
  std::ofstream(dir_ / "out.partial") << "mine";
  fs::create_symlink("there", path);
  GrowingFile file(path);
  file.write("one");
  file.finish();
  EXPECT_TRUE(fs::is_symlink(path));
  EXPECT_EQ(contents(dir_ / "there"), "one");
  EXPECT_EQ(contents(dir_ / "out.partial"), "mine");
  EXPECT_EQ(files(), 3U);
}

TEST_F(OutputFileTest, OneThatGrowsSaysWhyItCannot) {
  const auto written = [](const fs::path& path) {
    GrowingFile file(path);
    file.write("one");
    file.finish();
  };
  EXPECT_EQ(error_of([&] { written("/dev/full"); }), "/dev/full: cannot be written: No space left on device");
  EXPECT_THAT(error_of([&] { written(dir_ / "no" / "out"); }), HasSubstr("No such file or directory"));
  EXPECT_EQ(files(), 0U);
}

TEST_F(OutputFileTest, LinksThatLeadToEachOtherAreNoPlace) {
  const fs::path path = dir_ / "loop";
  fs::create_symlink("loop", path);
  constexpr const char* kWhy = "cannot be written: Too many levels of symbolic links";
  EXPECT_THAT(refusal(path), HasSubstr(kWhy));
  EXPECT_THAT(error_of([&] { replace_file(path, "one", std::nullopt); }), HasSubstr(kWhy));
  EXPECT_THAT(error_of([&] { GrowingFile file(path); }), HasSubstr(kWhy));
  EXPECT_TRUE(fs::is_symlink(path));
}

}  // namespace
}  // namespace quire
