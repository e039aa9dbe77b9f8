#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include <tl/expected.hpp>

namespace quire {

/// An error that the operator must correct: a damaged file, a flag out of range, a machine without memory.
/// Thrown while loading and starting; the message is one line and names file, offset, key or flag.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Why a request is refused. `serve` maps it to an HTTP status and an OpenAI error body.
enum class RequestErrorCode : uint8_t {
  kInvalid,       // 400: a field is missing, of the wrong type or out of range
  kTooLong,       // 400: the prompt does not fit the model or the pool (OpenAI's context_length_exceeded)
  kNotFound,      // 404: no such model
  kQueueFull,     // 429: try again later
  kShuttingDown,  // 503
  kInternal,      // 500: the engine failed; the request did nothing wrong
};

/// An error that the client must correct. A value; it is never thrown across the boundary of a library.
struct RequestError {
  RequestErrorCode code = RequestErrorCode::kInvalid;
  std::string message;
  std::string param;  // the field at fault, empty if none
};

template <class T, class E = RequestError>
using Expected = tl::expected<T, E>;

inline tl::unexpected<RequestError> refuse(RequestErrorCode code, std::string message,
                                           std::string param = {}) {
  return tl::unexpected<RequestError>(RequestError{code, std::move(message), std::move(param)});
}

}  // namespace quire
