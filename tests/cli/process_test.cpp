// What an operator reads of an exception.
#include "cli/process.h"

#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

#include <gmock/gmock.h>

#include "base/error.h"

namespace quire::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Describe, IsOneLineForAPerson) {
  EXPECT_EQ(describe(Error("FILE: is damaged")), "FILE: is damaged");
  EXPECT_THAT(describe(std::bad_alloc()), StartsWith("out of memory: lower --num-blocks"));
  EXPECT_THAT(describe(std::length_error("vector::reserve")), StartsWith("out of memory: lower"));
  const std::error_code denied = std::make_error_code(std::errc::permission_denied);
  using std::filesystem::filesystem_error;
  EXPECT_EQ(describe(filesystem_error("status", "/a/b", denied)), "/a/b: Permission denied");
  EXPECT_EQ(describe(filesystem_error("rename", "/a", "/b", denied)), "/a: Permission denied (/b)");
  EXPECT_EQ(describe(filesystem_error("current_path", denied)), "Permission denied");
  const std::system_error threads(std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_THAT(describe(threads), HasSubstr("--threads"));
  EXPECT_THAT(describe(std::system_error(denied)), Not(HasSubstr("--threads")));
}

}  // namespace
}  // namespace quire::cli
