// Files that are mapped or read, and what becomes of them afterwards.
#include "formats/mapped_file.h"

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "base/error.h"
#include "formats/mapping_registry.h"
#include "tests/support/data.h"

namespace quire::formats {
namespace {

using testing::HasSubstr;

constexpr size_t kBytes = size_t{64} << 10;

std::filesystem::path made(const std::string& name) {
  const std::filesystem::path path = test::temp_dir() / name;
  std::ofstream out(path, std::ios::binary);
  for (size_t i = 0; i < kBytes; ++i) out.put(static_cast<char>(i % 251));
  return path;
}

unsigned sum(const MappedFile& file) {
  unsigned total = 0;
  for (size_t i = 0; i < file.size(); ++i) total += std::to_integer<unsigned>(file.data()[i]);
  return total;
}

TEST(MappedFile, ReadingGivesTheSameBytes) {
  const std::filesystem::path path = made("both");
  const MappedFile mapped(path);
  const MappedFile copied(path, FileAccess::kRead);
  EXPECT_EQ(copied.size(), kBytes);
  EXPECT_EQ(copied.size(), mapped.size());
  EXPECT_EQ(copied.modified(), mapped.modified());
  EXPECT_EQ(sum(copied), sum(mapped));
  copied.release_pages(copied.data(), copied.size());  // which would lose them
  EXPECT_EQ(sum(copied), sum(mapped));
}

TEST(MappedFile, ReadingRefusesWhatMappingRefuses) {
  std::ofstream(test::temp_dir() / "empty").flush();
  for (const std::filesystem::path& path : {test::temp_dir() / "absent", test::temp_dir() / "empty",
                                            test::temp_dir(), std::filesystem::path("/dev/zero")}) {
    for (const FileAccess access : {FileAccess::kMap, FileAccess::kRead}) {
      try {
        const MappedFile file(path, access);
        ADD_FAILURE() << path;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(path.string()));
      }
    }
  }
}

TEST(MappedFile, WhatWasReadOutlivesTheFile) {
  const std::filesystem::path path = made("shrinks");
  const MappedFile file(path, FileAccess::kRead);
  const unsigned before = sum(file);
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(sum(file), before);
}

TEST(MappedFileDeathTest, ALostPageEndsTheProgramWithTheFilesName) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto read_lost_page = [] {
    report_lost_mappings();
    const std::filesystem::path path = made("lost \"%s\" pages");
    const MappedFile first(path);
    MappedFile file = MappedFile(made("another"));
    std::filesystem::resize_file(path, 100);
    volatile unsigned seen = sum(file);  // which has all its pages
    seen = sum(first);
    static_cast<void>(seen);
  };
  EXPECT_EXIT(read_lost_page(), testing::ExitedWithCode(1),
              "quire: .*/lost \"%s\" pages: a part of it is no longer readable");
}

TEST(MappedFileDeathTest, AnotherBusErrorEndsItAsEver) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto raise_it = [] {
    signal(SIGBUS, SIG_DFL);  // a sanitizer's handler would exit
    report_lost_mappings();
    raise(SIGBUS);
    raise(SIGBUS);
  };
  EXPECT_EXIT(raise_it(), testing::KilledBySignal(SIGBUS), "");
}

TEST(MappingRegistry, KnowsWhatIsMappedNow) {
  std::vector<std::byte> memory(3000);
  const std::byte* at = memory.data();
  EXPECT_EQ(mapped_path_at(at), nullptr);
  add_mapping(at, 1000, "first");
  add_mapping(at + 1000, 1000, "second");
  EXPECT_STREQ(mapped_path_at(at), "first");
  EXPECT_STREQ(mapped_path_at(at + 999), "first");
  EXPECT_STREQ(mapped_path_at(at + 1000), "second");
  EXPECT_EQ(mapped_path_at(at + 2000), nullptr);
  EXPECT_EQ(mapped_path_at(nullptr), nullptr);
  remove_mapping(at);
  EXPECT_EQ(mapped_path_at(at), nullptr);
  add_mapping(at + 2000, 1000, "third");
  EXPECT_STREQ(mapped_path_at(at + 2999), "third");
  remove_mapping(at + 1000);
  remove_mapping(at + 2000);
  EXPECT_EQ(mapped_path_at(at + 2999), nullptr);
}

TEST(MappedFile, MovesKeepTheirNames) {
  const std::filesystem::path path = made("m");
  MappedFile first(path);
  const std::byte* data = first.data();
  MappedFile second(std::move(first));
  EXPECT_EQ(mapped_path_at(data), path.string());
  second = MappedFile(made("n"));
  EXPECT_EQ(mapped_path_at(data), nullptr);
}

}  // namespace
}  // namespace quire::formats
