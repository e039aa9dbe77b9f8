#include "base/describe.h"

#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

TEST(Describe, WantOfMemoryHasNoNameOfAType) {
  EXPECT_EQ(describe(std::bad_alloc()), "out of memory");
  EXPECT_EQ(describe(std::bad_array_new_length()), "out of memory");
  try {
    std::vector<char> chars;
    chars.reserve(chars.max_size() + 1);
    ADD_FAILURE() << "no vector is that long";
  } catch (const std::exception& error) {
    EXPECT_EQ(describe(error), "out of memory");
  }
}

TEST(Describe, ErrorsOfFilesNameTheFileAndTheReason) {
  const auto why = std::make_error_code(std::errc::no_space_on_device);
  using std::filesystem::filesystem_error;
  EXPECT_EQ(describe(filesystem_error("cannot write", why)), why.message());
  EXPECT_EQ(describe(filesystem_error("cannot write", "/a/b", why)), "/a/b: " + why.message());
  EXPECT_EQ(describe(filesystem_error("cannot rename", "/a", "/b", why)), "/a: " + why.message() + " (/b)");
  try {
    static_cast<void>(std::filesystem::file_size("/nowhere/at/all"));
    ADD_FAILURE() << "there is no such file";
  } catch (const std::exception& error) {
    EXPECT_EQ(describe(error), "/nowhere/at/all: No such file or directory");
  }
}

TEST(Describe, OtherExceptionsSayWhatTheySay) {
  EXPECT_EQ(describe(Error("the file is broken")), "the file is broken");
  EXPECT_EQ(describe(std::runtime_error("no luck")), "no luck");
}

TEST(Describe, TheExceptionThatIsHandledMayHaveAnyType) {
  const auto say = [](const auto& thrown) {
    try {
      throw thrown;
    } catch (...) {
      return describe_current_exception();
    }
  };
  EXPECT_EQ(say(std::bad_alloc()), "out of memory");
  EXPECT_EQ(say(std::runtime_error("no luck")), "no luck");
  EXPECT_EQ(say(7), "unknown error");
}

}  // namespace
}  // namespace quire
