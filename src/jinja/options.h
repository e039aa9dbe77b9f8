#pragma once

#include <cstdint>
#include <ctime>
#include <string>

// What a template is parsed and rendered with, and how either fails.
namespace quire::jinja {

/// Jinja's environment as far as it shapes the text around tags. transformers sets both.
struct Whitespace {
  bool trim_blocks = true;    // the newline after a block or comment goes
  bool lstrip_blocks = true;  // and the blanks between the line's start and it
};

/// Bounds of one rendering; templates come with models and are not trusted. The defaults end a hostile
/// template within about 100 ms and 1 MiB of text.
struct Limits {
  uint64_t max_steps = 1'000'000;       // nodes evaluated; one is 50 ns of work at most
  uint32_t max_depth = 1000;            // of statements, expressions and values within one another
  uint64_t max_output_bytes = 1 << 20;  // and of any string on the way
  uint64_t max_memory_bytes = 8 << 20;  // of all values together
};

/// The time that strftime_now tells.
struct RenderClock {
  std::time_t now = 0;
  bool utc = false;  // else local time
};

/// Why a template does not parse or render; what the library throws.
struct Fault {
  std::string message;
  uint32_t line = 0;  // from 1; 0: not yet placed, never outside the library
  uint32_t column = 0;
  bool from_template = false;  // raise_exception: the message is the template's own
};

}  // namespace quire::jinja
