// Whose files are trusted, and where files that are kept are written.
#include "formats/kept_file.h"

#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/support/data.h"

namespace quire::formats {
namespace {

using testing::HasSubstr;

constexpr uid_t kStranger = 12345;

class KeptFile : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = test::temp_dir() / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
    path_ = dir_ / "file";
    std::ofstream(path_) << "text";
    chmod(dir_.c_str(), 0755);
    chmod(path_.c_str(), 0644);
  }
  static std::string refusal(const std::filesystem::path& path, std::optional<uid_t> trusted = {}) {
    try {
      refuse_file_of_others(path, trusted);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  }

  std::filesystem::path dir_;
  std::filesystem::path path_;
};

TEST_F(KeptFile, OnesOwnIsTrusted) {
  EXPECT_EQ(refusal(path_), "");
  chmod(path_.c_str(), 0600);
  EXPECT_EQ(refusal(path_), "");
  chmod(dir_.c_str(), 0700);
  EXPECT_EQ(refusal(path_), "");
}

TEST_F(KeptFile, WhatOthersMayWriteIsNot) {
  for (const mode_t mode : {0646, 0666, 0602}) {
    chmod(path_.c_str(), mode);
    EXPECT_THAT(refusal(path_), HasSubstr(path_.string() + ": is not trusted: other users may write it"));
  }
  chmod(path_.c_str(), 0600);
  chmod(dir_.c_str(), 0777);
  EXPECT_THAT(refusal(path_),
              HasSubstr(dir_.string() + ": is not trusted: other users may write it (mode 777"));
  EXPECT_THROW(refuse_folder_of_others(path_), Error);
  chmod(dir_.c_str(), 01777);  // there, only owners replace files
  EXPECT_EQ(refusal(path_), "");
  refuse_folder_of_others(path_);
}

TEST_F(KeptFile, ALinkIsTrustedAsItsTarget) {
  const std::filesystem::path open_dir = dir_ / "open";
  std::filesystem::create_directory(open_dir);
  std::filesystem::copy_file(path_, open_dir / "file");
  chmod(open_dir.c_str(), 0777);
  std::filesystem::create_symlink(open_dir / "file", dir_ / "link");
  EXPECT_THAT(refusal(dir_ / "link"), HasSubstr(open_dir.string()));
  EXPECT_THAT(refusal(dir_ / "absent"), HasSubstr("No such file"));
}

TEST_F(KeptFile, AnotherUsersIsTrustedWhereThatUserIs) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED, only root can give a file away";
  ASSERT_EQ(chown(path_.c_str(), kStranger, 0), 0);
  EXPECT_THAT(refusal(path_), HasSubstr("another user (uid 12345)"));
  EXPECT_EQ(refusal(path_, kStranger), "");
  chmod(path_.c_str(), 0664);
  EXPECT_EQ(refusal(path_, kStranger), "");  // root's group has no other member
  ASSERT_EQ(chown(path_.c_str(), kStranger, kStranger), 0);
  chmod(path_.c_str(), 0664);
  EXPECT_THAT(refusal(path_, kStranger), HasSubstr("other users may write it"));
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat facts {};
  EXPECT_EQ(stat(path.c_str(), &facts), 0);
  return facts.st_mode & 07777;
}

TEST_F(KeptFile, AReplacementHasItsMode) {
  for (const mode_t mode : {0600, 0644}) {
    FileReplacement out(path_, mode);
    out.write("new");
    out.commit();
    EXPECT_EQ(mode_of(path_), mode);
  }
  // What a killed process left, perhaps under another mask.
  std::ofstream(dir_ / "file.part") << "left";
  chmod((dir_ / "file.part").c_str(), 0666);
  FileReplacement out(path_, 0600);
  out.write("newer");
  out.commit();
  EXPECT_EQ(mode_of(path_), 0600U);
}

TEST_F(KeptFile, AnothersFileInTheWayIsNotWrittenTo) {
  const std::filesystem::path part = dir_ / "file.part";
  std::filesystem::create_hard_link(path_, part);
  EXPECT_THROW(FileReplacement(path_, 0600), Error);
  std::filesystem::remove(part);
  std::filesystem::create_symlink(path_, part);
  EXPECT_THROW(FileReplacement(path_, 0600), Error);
  std::filesystem::remove(part);
  if (geteuid() == 0) {
    std::ofstream(part).flush();
    ASSERT_EQ(chown(part.c_str(), kStranger, kStranger), 0);
    EXPECT_THROW(FileReplacement(path_, 0600), Error);
  }
  std::ifstream in(path_);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "text");
}

}  // namespace
}  // namespace quire::formats
