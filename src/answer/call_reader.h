#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace quire::answer {

/// The tools of a request by name: the JSON schema of the parameters of each.
using Tools = std::map<std::string, json::object, std::less<>>;

/// Takes what a reader finds.
class CallSink {
 public:
  virtual ~CallSink() = default;
  /// A call's name is complete. `id`: if the model gave one. False if there is no such tool.
  virtual bool begin(std::string_view name, std::string_view id) = 0;
  /// More of the JSON text of the arguments of the call that has begun.
  virtual void arguments(std::string_view json) = 0;
};

/// Reads one call, character by character, so that a call can be told of before it is complete. It needs no
/// more memory than the call has text. Not thread-safe.
class CallReader {
 public:
  enum class Step : uint8_t {
    kMore,    // goes on
    kDone,    // the call is complete, with this character
    kBroken,  // this is no call
  };
  virtual ~CallReader() = default;
  virtual Step push(char c, CallSink& sink) = 0;
};

/// {"name": "f", "arguments": {...}}, with the members in any order; "parameters" for "arguments", arguments
/// as a string that holds JSON, and {"type": "function", "function": {...}} around it are taken too.
std::unique_ptr<CallReader> read_json_call();
/// A name, whatever stands between it and the arguments in Mistral's and DeepSeek's formats, and the
/// arguments as a JSON object.
std::unique_ptr<CallReader> read_named_call();
/// <function=f><parameter=a>1</parameter></function>: Qwen3-Coder's. A value is a string unless the tool's
/// schema says otherwise.
std::unique_ptr<CallReader> read_xml_call(const Tools& tools);
/// f(a=1, b="x"), with literals of Python as values.
std::unique_ptr<CallReader> read_python_call();

inline constexpr size_t kMaxCallName = 256;  // bytes

/// A value as JSON or Python writes it; empty if the text is neither, or JSON has no such value (1e400).
std::optional<json::value> read_literal(std::string_view text);
/// Whether it is an integer in decimal digits that 64 bits may not hold: it is kept as it is written.
bool is_long_integer(std::string_view text);

}  // namespace quire::answer
