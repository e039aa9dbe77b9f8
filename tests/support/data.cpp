#include "tests/support/data.h"

#include <cstdlib>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace quire::test {
namespace {

std::filesystem::path run_dir() {
  return std::filesystem::temp_directory_path() / fmt::format("quire-test-{}", getpid());
}

class RemoveRunDir : public testing::Environment {
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(run_dir(), ignored);
  }
};
[[maybe_unused]] const auto* const kRemover = testing::AddGlobalTestEnvironment(new RemoveRunDir);

}  // namespace

std::filesystem::path data_dir() {
  const char* given = std::getenv("QUIRE_DATA");
  return given != nullptr ? given : "../shared/data";
}

std::filesystem::path demo_model_dir() { return "models/llama-quire-stories-5m"; }

std::filesystem::path temp_dir() {
  static int count = 0;
  const auto dir = run_dir() / std::to_string(count++);
  std::filesystem::create_directories(dir);
  return dir;
}

}  // namespace quire::test
