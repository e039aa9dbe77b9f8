// The inputs that fuzzers (and readers) have found, in every build.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/fuzz/targets.h"

namespace quire {
namespace {

class FuzzRegressions : public testing::TestWithParam<fuzz::Target> {};

TEST_P(FuzzRegressions, EndWell) {
  set_log_level(LogLevel::kOff);
  const std::filesystem::path dir = std::filesystem::path("tests/fuzz/regressions") / GetParam().name;
  ASSERT_TRUE(std::filesystem::is_directory(dir)) << dir << " (run this from the repository root)";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty()) << dir;
  for (const auto& path : files) {
    std::ifstream in(path, std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(in), {}};
    SCOPED_TRACE(path);
    EXPECT_NO_THROW(GetParam().run(input));
    // Half of it is broken in another way.
    EXPECT_NO_THROW(GetParam().run(std::string_view(input).substr(0, input.size() / 2)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzRegressions,
                         testing::ValuesIn(fuzz::targets().begin(), fuzz::targets().end()),
                         [](const auto& each) {
                           std::string name(each.param.name);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace quire
