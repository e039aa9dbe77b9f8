#include "tests/device_on_host/paper.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace quire::test::fibers {
namespace {

constexpr const char* kDocument = "docs/measurements/gpu.md";

/// Puts a table between its two marks. False if they are not there.
bool put(std::string& document, const PaperTable& table) {
  const std::string mark = fmt::format("<!-- Written by ./dev gpu paper: {} -->\n", table.name);
  const size_t begin = document.find(mark);
  if (begin == std::string::npos) return false;
  const size_t first = begin + mark.size();
  const size_t end = document.find("<!-- end -->", first);
  if (end == std::string::npos) return false;
  document.replace(first, end - first, table.text);
  return true;
}

/// What the fibers count, and what follows from it, is what the document says.
TEST(Paper, HasTheNumbersOfTheKernels) {
  std::stringstream read;
  read << std::ifstream(kDocument).rdbuf();
  std::string document = read.str();
  for (const PaperTable& table : paper_tables()) EXPECT_TRUE(put(document, table)) << table.name;
  if (std::getenv("QUIRE_WRITE_DOCS") != nullptr) {
    std::ofstream(kDocument) << document;
    return;
  }
  EXPECT_TRUE(document == read.str()) << kDocument << " is older than the kernels: ./dev gpu paper writes it";
}

}  // namespace
}  // namespace quire::test::fibers
