#pragma once

#include <cstdint>

namespace quire {

/// Bounds of one rendering; templates come with models and are not trusted. What is set here ends a hostile
/// template within about 100 ms and 1 MiB of text; for a long conversation see limits_for().
struct TemplateLimits {
  uint64_t max_steps = 1'000'000;       // nodes evaluated; one is 50 ns of work at most
  uint32_t max_depth = 1000;            // of statements, expressions and values within one another
  uint64_t max_output_bytes = 1 << 20;  // and of any string on the way
  uint64_t max_memory_bytes = 8 << 20;  // of all values together
};

}  // namespace quire
