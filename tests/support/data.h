#pragma once

#include <filesystem>
#include <string>

namespace quire::test {

/// Where the test data lies: $QUIRE_DATA, by default ../shared/data beside the checkout.
std::filesystem::path data_dir();

/// The demo model that the repository ships.
std::filesystem::path demo_model_dir();

/// A fresh folder of this test's own under the system's temporary folder; removed when the program ends.
std::filesystem::path temp_dir();

}  // namespace quire::test

/// At the head of a test that reads the test data: skips it, saying so, where the data is absent.
#define QUIRE_NEEDS_DATA(relative)                                                               \
  if (!std::filesystem::exists(::quire::test::data_dir() / (relative)))                          \
  GTEST_SKIP() << "SKIPPED, no test data: " << (::quire::test::data_dir() / (relative)).string() \
               << " is absent (set QUIRE_DATA)"
