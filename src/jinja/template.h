#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "jinja/options.h"

namespace quire::jinja {

/// A parsed template. It renders as Python's jinja2 does in transformers' settings (sandboxed, with
/// tojson, strftime_now, raise_exception, `generation` blocks and loop controls). Immutable and thread-safe.
class Template {
 public:
  /// Throws Fault with the place of a syntax error. `source` must be valid UTF-8.
  static Template parse(std::string_view source, const Whitespace& whitespace = {});

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  /// Renders with the variables of `context`; a variable that it lacks is looked up in `defaults`. Throws
  /// only Fault, with the place, and std::bad_alloc.
  std::string render(const json::object& context, const json::object& defaults, const Limits& limits,
                     const RenderClock& clock) const;

  /// Whether `word` is, as a whole, a string or an attribute name in the template.
  bool mentions(std::string_view word) const;
  /// Whether the template uses a variable of this name, its own variables included.
  bool has_variable(std::string_view name) const;

 private:
  Template();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::jinja
