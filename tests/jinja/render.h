#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "jinja/template.h"

namespace quire::test {

struct Rendering {
  std::string text;
  std::string error;  // the message, without its place
  uint32_t line = 0;
  uint32_t column = 0;
  bool failed = false;
};

/// 2025-07-10 12:00:00 UTC, to which the reference renderings pin strftime_now.
inline constexpr jinja::RenderClock kPinnedClock{.now = 1'752'148'800, .utc = true};

inline Rendering render_jinja(std::string_view source, const json::object& context = {},
                              const jinja::Whitespace& whitespace = {}, const jinja::Limits& limits = {}) {
  Rendering out;
  try {
    out.text = jinja::Template::parse(source, whitespace).render(context, {}, limits, kPinnedClock);
  } catch (const jinja::Fault& fault) {
    out = {.text = {}, .error = fault.message, .line = fault.line, .column = fault.column, .failed = true};
  }
  return out;
}

}  // namespace quire::test
