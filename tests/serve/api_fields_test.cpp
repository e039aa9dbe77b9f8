#include "serve/api_fields.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/openai_schema.h"

namespace quire::serve {
namespace {

constexpr ApiEndpoint kEndpoints[] = {ApiEndpoint::kCompletions, ApiEndpoint::kChat};

/// The error for a body with these members besides those that the endpoint needs.
std::optional<RequestError> fault(ApiEndpoint endpoint, const std::string& members) {
  const bool chat = endpoint == ApiEndpoint::kChat;
  std::string body = "{" + members;
  if (members.find(chat ? "\"messages\":" : "\"prompt\":") == std::string::npos) {
    body += chat ? R"(, "messages": [{"role": "user", "content": "a"}])" : R"(, "prompt": "a")";
  }
  const json::value parsed = parse_json(body + "}", "test");
  const SchemaContext context{.vocab_size = 100};
  if (chat) {
    const auto request = parse_chat(parsed, context);
    return request ? std::nullopt : std::optional(request.error());
  }
  const auto request = parse_completion(parsed, context);
  return request ? std::nullopt : std::optional(request.error());
}

void expect_taken(ApiEndpoint endpoint, const std::string& members) {
  const auto error = fault(endpoint, members);
  EXPECT_FALSE(error) << members << ": " << error->message;
}

void expect_refused(ApiEndpoint endpoint, const ApiField& field, const std::string& value) {
  const auto error = fault(endpoint, fmt::format("\"{}\": {}", field.name, value));
  ASSERT_TRUE(error) << field.name;
  EXPECT_EQ(error->param, field.name);
  EXPECT_EQ(error->code, RequestErrorCode::kInvalid);
  EXPECT_EQ(error->message, fmt::format("{} is not supported: {}", field.name, field.remark));
}

void expect_used_as_written(ApiEndpoint endpoint, const ApiField& field) {
  switch (field.use) {
    case FieldUse::kHonoured:
      if (!field.values.empty()) expect_taken(endpoint, std::string(field.values));
      return;
    case FieldUse::kIgnored:
      expect_taken(endpoint, fmt::format("\"{}\": {}", field.name, field.values));
      EXPECT_TRUE(fault(endpoint, fmt::format("\"{}\": {}", field.name, field.values == "{}" ? "[]" : "{}")));
      return;
    case FieldUse::kNeutral: {
      const json::value taken = parse_json(field.values, "row");
      for (const json::value& value : taken.as_array()) {
        expect_taken(endpoint, fmt::format("\"{}\": {}", field.name, json::serialize(value)));
      }
      return expect_refused(endpoint, field, "\"asks for something\"");
    }
    case FieldUse::kRefused:
      expect_taken(endpoint, fmt::format("\"{}\": null", field.name));
      return expect_refused(endpoint, field, "1");
  }
}

TEST(ApiFields, TheParserUsesEachFieldAsItsRowSays) {
  for (const ApiEndpoint endpoint : kEndpoints) {
    for (const ApiField& field : api_fields()) {
      if (field.is_for(endpoint)) expect_used_as_written(endpoint, field);
    }
  }
}

TEST(ApiFields, EachFieldOfTheParserHasOneRowAndEachHonouredRowIsRead) {
  for (const ApiEndpoint endpoint : kEndpoints) {
    const auto read = known_fields(endpoint);
    std::set<std::string_view> rows;
    for (const ApiField& field : api_fields()) {
      if (!field.is_for(endpoint)) continue;
      EXPECT_TRUE(rows.insert(field.name).second) << field.name << " has two rows";
      EXPECT_NE(field.owners, 0) << field.name;
      if (field.use == FieldUse::kHonoured && field.values.empty()) continue;
      EXPECT_GT(std::ranges::count(read, field.name), 0) << field.name << " is not read";
      if (field.use != FieldUse::kHonoured) {
        EXPECT_FALSE(field.remark.empty()) << field.name;
      }
    }
    for (const std::string_view name : read) EXPECT_EQ(rows.count(name), 1U) << name << " has no row";
  }
}

/// Of the current version: its older names of structured_outputs do not count.
TEST(ApiFields, MostOfVllmsFieldsAreTaken) {
  const auto taken = [](ApiEndpoint endpoint, std::set<FieldUse> uses) {
    return std::ranges::count_if(api_fields(), [&](const ApiField& field) {
      return field.is_for(endpoint) && (field.owners & kVllm) != 0 && uses.contains(field.use) &&
             !field.name.starts_with("guided_");
    });
  };
  const std::set<FieldUse> any = {FieldUse::kHonoured, FieldUse::kNeutral, FieldUse::kIgnored};
  EXPECT_GE(taken(ApiEndpoint::kChat, any), 55);
  EXPECT_GE(taken(ApiEndpoint::kCompletions, any), 45);
}

TEST(ApiFields, ThePageIsWrittenFromTheTable) {
  const std::string path = std::string(QUIRE_SOURCE_DIR) + "/docs/api.md";
  if (std::getenv("QUIRE_WRITE_DOCS") != nullptr) std::ofstream(path) << api_fields_page();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == api_fields_page())
      << "docs/api.md differs from src/serve/api_field_table.cpp: run this test with QUIRE_WRITE_DOCS=1";
}

}  // namespace
}  // namespace quire::serve
