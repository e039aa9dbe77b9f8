#include <cstdio>
#include <exception>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/device/device.h"

/// Exit status 2: there is no device to test.
int main(int argc, char** argv) try {
  bool runs = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--help" || flag.starts_with("--gtest_list_tests")) runs = false;
  }
  testing::InitGoogleTest(&argc, argv);
  if (const std::string why = runs ? quire::test::gpu::why_no_device() : ""; !why.empty()) {
    std::fprintf(stderr, "device_test: %s\n", why.c_str());
    return 2;
  }
  return RUN_ALL_TESTS();
} catch (const std::exception& error) {
  std::fprintf(stderr, "device_test: %s\n", error.what());
  return 1;
}
