#include <fmt/format.h>

#include "jinja/interpreter.h"
#include "jinja/ops.h"

// What `loop` and macros show of themselves.
namespace quire::jinja {

size_t loop_length(Sandbox& sandbox, Loop& loop) {
  if (loop.has_length) return loop.length;
  if (loop.statement->filter == nullptr && has_length(loop.source)) {
    loop.length = length_of(sandbox, loop.source);
  } else {
    // A generator, or filtered: take what is left, to go on with a list of it.
    std::vector<Value> rest;
    Value item;
    while (loop.interpreter->advance(loop, item)) rest.push_back(item);
    loop.length = rest.size() + static_cast<size_t>(loop.index0 + 1) + (loop.has_after ? 1 : 0);
    loop.walk = Walk(sandbox, new_list(sandbox, rest));
    loop.passed_filter = true;
  }
  loop.has_length = true;
  return loop.length;
}

namespace {

bool peek(Loop& loop) {
  if (!loop.has_after) loop.has_after = loop.interpreter->advance(loop, loop.after);
  return loop.has_after;
}

Value loop_cycle(Interpreter&, const Value& self, const Args& args) {
  if (args.positional.empty()) fail("no items for cycling given");
  return args.positional[static_cast<size_t>(self.as<Loop>().index0) % args.positional.size()];
}

Value loop_changed(Interpreter& interpreter, const Value& self, const Args& args) {
  Loop& loop = self.as<Loop>();
  const Value now = new_tuple(interpreter.sandbox(), args.positional);
  if (loop.has_changed && equal(interpreter.sandbox(), loop.changed, now)) return Value::boolean(false);
  loop.has_changed = true;
  loop.changed = now;
  return Value::boolean(true);
}

}  // namespace

std::optional<Value> loop_attribute(Sandbox& sandbox, const Value& value, std::string_view name) {
  Loop& loop = value.as<Loop>();
  const auto undefined = [&](std::string_view hint) { return Value::undefined(sandbox.make<Missing>(hint)); };
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!peek(loop));
  if (name == "length") return Value::integer(static_cast<Int>(loop_length(sandbox, loop)));
  if (name == "revindex") return Value::integer(static_cast<Int>(loop_length(sandbox, loop)) - loop.index0);
  if (name == "revindex0")
    return Value::integer(static_cast<Int>(loop_length(sandbox, loop)) - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return peek(loop) ? loop.after : undefined("there is no next item");
  if (name == "cycle") {
    return Value::object(Kind::kFunction, sandbox.make<Function>("cycle", &loop_cycle, value));
  }
  if (name == "changed") {
    return Value::object(Kind::kFunction, sandbox.make<Function>("changed", &loop_changed, value));
  }
  return std::nullopt;
}

void append_loop(Sandbox& sandbox, std::string& out, Loop& loop) {
  out += fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop_length(sandbox, loop));
}

std::optional<Value> macro_attribute(Sandbox& sandbox, const Value& value, std::string_view name) {
  const MacroNode& node = *value.as<Macro>().node;
  if (name == "name") return Value::string(node.name);
  if (name == "catch_kwargs") return Value::boolean(node.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(node.uses_varargs);
  if (name == "caller") return Value::boolean(node.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  names.reserve(node.parameters.size());
  for (const auto& [id, parameter] : node.parameters) names.push_back(Value::string(parameter));
  return new_tuple(sandbox, names);
}

std::string macro_name_repr(const Value& value) { return string_repr(value.as<Macro>().node->name); }

}  // namespace quire::jinja
