#pragma once

#include <cstdint>
#include <ctime>
#include <string>

// The options for parsing and rendering a template, and the error of both.
namespace quire::jinja {

/// The settings of Jinja's environment for the text around tags. transformers sets both.
struct Whitespace {
  bool trim_blocks = true;    // removes the newline after a block or comment
  bool lstrip_blocks = true;  // and the blanks between the start of the line and it
};

/// Limits of one rendering; templates come with models and are not trusted. The defaults end a hostile
/// template within about 100 ms and 1 MiB of text.
struct Limits {
  uint64_t max_steps = 1'000'000;       // nodes evaluated; each is at most 50 ns of work
  uint32_t max_depth = 1000;            // nesting of statements, expressions and values
  uint64_t max_output_bytes = 1 << 20;  // also of any intermediate string
  uint64_t max_memory_bytes = 8 << 20;  // of all values together
};

/// The time for strftime_now.
struct RenderClock {
  std::time_t now = 0;
  bool utc = false;  // otherwise local time
};

/// Why a template does not parse or render; the exception of this library.
struct Fault {
  std::string message;
  uint32_t line = 0;  // from 1; 0: not yet known, never outside the library
  uint32_t column = 0;
  bool from_template = false;  // raise_exception: the message is the template's own
};

}  // namespace quire::jinja
