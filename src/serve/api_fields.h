#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "serve/fields.h"

// Every field that OpenAI, vLLM and llama-server document for the bodies of /v1/completions and
// /v1/chat/completions, and what this server does with it. The parser takes from this table all that it does
// not honour, and docs/api.md is written from it.
namespace quire::serve {

enum class ApiEndpoint : uint8_t { kCompletions = 1, kChat = 2 };

enum class FieldUse : uint8_t {
  kHonoured,
  kNeutral,  // taken with a value that asks for nothing, otherwise refused
  kIgnored,  // taken and without effect
  kRefused,
};

struct ApiField {
  std::string_view name;
  uint8_t endpoints;  // ApiEndpoint, or both
  uint8_t owners;     // kOpenAi | kVllm | kLlamaServer | kQuire
  FieldUse use;
  /// In JSON. Honoured: members of a body that has the field; empty if tests show the field elsewhere.
  /// Neutral: an array of the values that are taken. Ignored: a value, whose type is the field's.
  std::string_view values;
  /// For kNeutral and kRefused the reason, which ends an error's sentence: "NAME is not supported: REMARK".
  std::string_view remark;

  bool is_for(ApiEndpoint endpoint) const { return (endpoints & static_cast<uint8_t>(endpoint)) != 0; }
};

inline constexpr uint8_t kOpenAi = 1;
inline constexpr uint8_t kVllm = 2;
inline constexpr uint8_t kLlamaServer = 4;
inline constexpr uint8_t kQuire = 8;

std::span<const ApiField> api_fields();

/// Takes the fields of `endpoint` that are not honoured: marks them as known, and records an error for the
/// first that asks for something.
void read_unused_fields(Fields& fields, ApiEndpoint endpoint);

/// The text of docs/api.md.
std::string api_fields_page();

}  // namespace quire::serve
