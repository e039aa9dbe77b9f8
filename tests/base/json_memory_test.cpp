#include "base/json_memory.h"

#include <string>

#include <gtest/gtest.h>

namespace quire {
namespace {

std::string many(const char* piece, int count) {
  std::string out = "[";
  for (int i = 0; i < count; ++i) out += std::string(i > 0 ? "," : "") + piece;
  return out + "]";
}

json::value parse_within(uint64_t bytes, const std::string& text) {
  return parse_json(text, "body", 64, json::make_shared_resource<JsonMemory>(bytes));
}

TEST(JsonMemory, HoldsWhatFits) {
  for (const std::string& text :
       {many("7", 10'000), many(R"({"a":{"b":"a text that is longer than a value"}})", 1000),
        '"' + std::string(100'000, 'a') + '"', R"("\n)" + std::string(100'000, 'a') + '"',
        std::string("[]")}) {
    json::value value = parse_within(4 << 20, text);
    EXPECT_EQ(value, parse_json(text, "body")) << text.substr(0, 50);
    // It outlives its parser, and a copy outlives it.
    const json::value copy(value, json::storage_ptr());
    value = nullptr;
    EXPECT_EQ(copy, parse_json(text, "body"));
  }
}

TEST(JsonMemory, RefusesWhatGrowsBeyondIt) {
  for (const char* piece :
       {"7", "[]", "[7]", R"("a")", R"({"":0})", R"({"a":[{"b":"long enough for memory"}]})"}) {
    EXPECT_THROW(parse_within(1 << 20, many(piece, 100'000)), JsonTooLarge) << piece;
  }
  EXPECT_THROW(parse_within(1 << 20, '"' + std::string(2 << 20, 'a') + '"'), JsonTooLarge);
  EXPECT_THROW(parse_within(0, "[1]"), JsonTooLarge);
}

TEST(JsonMemory, CountsWhatItTakes) {
  JsonMemory memory(1 << 20);
  {
    json::array list(&memory);
    list.reserve(10'000);
    EXPECT_GE(memory.used(), 160'000U);
    EXPECT_LT(memory.used(), 400'000U);
  }
  EXPECT_LT(memory.used(), 40'000U) << "what is large goes back at once";
  EXPECT_THROW(parse_json("{", "body", 64, &memory), Error) << "errors in the text stay what they are";
}

}  // namespace
}  // namespace quire
