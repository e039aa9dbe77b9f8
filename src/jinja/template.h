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
  /// Throws Fault with the place of what does not parse. `source` must be valid UTF-8.
  static Template parse(std::string_view source, const Whitespace& whitespace = {});

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  /// The text for the variables of `context`; a variable that is not there is looked up in `defaults`.
  /// Throws Fault with the place, std::bad_alloc, nothing else.
  std::string render(const json::object& context, const json::object& defaults, const Limits& limits,
                     const RenderClock& clock) const;

  /// Whether `word` is a string or the name of an attribute somewhere in the template, as a whole.
  bool mentions(std::string_view word) const;
  /// Whether a variable of this name stands somewhere in the template, its own ones included.
  bool has_variable(std::string_view name) const;

 private:
  Template();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::jinja
