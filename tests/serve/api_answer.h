#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serve/service.h"

// What tests read in the answers of the API.
namespace quire::test {

inline std::string text_of(const Answer& answer, size_t choice = 0) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  return std::string(answer.parsed().at("choices").at(choice).at("text").as_string());
}
inline std::string error_code(const Answer& answer) {
  const json::value body = answer.parsed();
  const json::value& code = body.at("error").at("code");
  return code.is_null() ? "" : std::string(code.as_string());
}
inline std::string error_param(const Answer& answer) {
  const json::value body = answer.parsed();
  const json::value& param = body.at("error").at("param");
  return param.is_null() ? "" : std::string(param.as_string());
}

/// The texts of a stream by choice, and how it went.
struct Stream {
  std::map<int64_t, std::string> text;
  std::map<int64_t, std::string> finish;
  std::vector<json::value> chunks;
  bool done = false;
};
inline Stream read_stream(const Answer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.headers.at("content-type"), testing::HasSubstr("text/event-stream"));
  Stream out;
  for (size_t at = 0; at < answer.body.size();) {
    const size_t end = answer.body.find("\n\n", at);
    const std::string data = answer.body.substr(at + 6, end - at - 6);
    EXPECT_EQ(answer.body.substr(at, 6), "data: ");
    EXPECT_FALSE(out.done) << "an event after the end mark";
    at = end + 2;
    if (data == "[DONE]") {
      out.done = true;
      continue;
    }
    out.chunks.push_back(parse_json(data, "chunk"));
    for (const json::value& choice : out.chunks.back().at("choices").as_array()) {
      const int64_t index = choice.at("index").as_int64();
      const json::object& object = choice.as_object();
      const json::value* text = object.if_contains("delta") != nullptr
                                    ? object.at("delta").as_object().if_contains("content")
                                    : object.if_contains("text");
      if (text != nullptr) out.text[index] += std::string(text->as_string());
      if (object.at("finish_reason").is_string())
        out.finish[index] = std::string(object.at("finish_reason").as_string());
    }
  }
  return out;
}

/// A server with the defaults.
class ApiTest : public testing::Test {
 protected:
  Service service_;
};

}  // namespace quire::test
