#include "jinja/template.h"

#include <algorithm>
#include <vector>

#include "jinja/ast.h"
#include "jinja/interpreter.h"

namespace quire::jinja {
namespace {

std::vector<std::string_view> words_of(const Tree& tree) {
  std::vector<std::string_view> words;
  for (const auto& node : tree.nodes) {
    if (const auto* constant = dynamic_cast<const ConstantExpr*>(node.get())) {
      if (!constant->text.empty()) words.push_back(constant->text);
    } else if (const auto* attribute = dynamic_cast<const AttributeExpr*>(node.get())) {
      words.push_back(attribute->name);
    }
  }
  std::ranges::sort(words);
  return words;
}

}  // namespace

struct Template::Impl {
  Tree tree;
  std::vector<std::string_view> words;  // the strings and attributes in `tree`, sorted
};

Template::Template() : impl_(std::make_unique<Impl>()) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Template Template::parse(std::string_view source, const Whitespace& whitespace) {
  Template out;
  out.impl_->tree = parse_template(source, whitespace);
  out.impl_->words = words_of(out.impl_->tree);
  return out;
}

std::string Template::render(const json::object& context, const json::object& defaults, const Limits& limits,
                             const RenderClock& clock) const {
  return Interpreter(impl_->tree, context, defaults, limits, clock).run();
}

bool Template::mentions(std::string_view word) const {
  return std::ranges::binary_search(impl_->words, word);
}

bool Template::has_variable(std::string_view name) const {
  return std::ranges::find(impl_->tree.names, name) != impl_->tree.names.end();
}

}  // namespace quire::jinja
