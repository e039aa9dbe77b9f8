#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "jinja/ast.h"
#include "jinja/functions.h"
#include "jinja/methods.h"
#include "tests/jinja/reference.h"
#include "tests/jinja/render.h"

// docs/jinja.md lists what the renderer has and what it refuses, with the number of real templates that use
// each.
namespace quire::test {
namespace {

/// Number of templates by name.
using Counts = std::map<std::string, size_t>;
/// By the section of the document: "filters", "tests", "methods", "functions", "statements".
using Census = std::map<std::string, Counts>;

const char* statement_name(const jinja::Statement& statement) {
  using Kind = jinja::Statement::Kind;
  switch (statement.kind) {
    case Kind::kFor:
      return "for";
    case Kind::kIf:
      return "if";
    case Kind::kSet:
    case Kind::kSetBlock:
      return "set";
    case Kind::kMacro:
      return "macro";
    case Kind::kCallBlock:
      return "call";
    case Kind::kFilterBlock:
      return "filter";
    case Kind::kWith:
      return "with";
    case Kind::kScope:
      return static_cast<const jinja::ScopeStatement&>(statement).from_top ? "block" : "generation";
    case Kind::kBreak:
      return "break";
    case Kind::kContinue:
      return "continue";
    case Kind::kText:
    case Kind::kOutput:
      return nullptr;
  }
  return nullptr;
}

using Uses = std::set<std::pair<std::string, std::string>>;  // section, name

Uses uses_of(const jinja::Tree& tree) {
  Uses uses;
  std::set<std::string> own;  // the template's macros
  for (const auto& node : tree.nodes) {
    if (const auto* macro = dynamic_cast<const jinja::MacroStatement*>(node.get()))
      own.insert(tree.names[macro->id]);
  }
  own.insert("caller");
  for (const auto& node : tree.nodes) {
    if (const auto* statement = dynamic_cast<const jinja::Statement*>(node.get())) {
      if (const char* name = statement_name(*statement)) uses.emplace("statements", name);
    } else if (const auto* apply = dynamic_cast<const jinja::ApplyExpr*>(node.get())) {
      uses.emplace(apply->kind == jinja::Expr::Kind::kFilter ? "filters" : "tests", apply->name);
    } else if (const auto* call = dynamic_cast<const jinja::CallExpr*>(node.get())) {
      if (const auto* method = dynamic_cast<const jinja::AttributeExpr*>(call->callee)) {
        uses.emplace("methods", method->name);
      } else if (const auto* name = dynamic_cast<const jinja::NameExpr*>(call->callee)) {
        if (!own.contains(tree.names[name->id])) uses.emplace("functions", tree.names[name->id]);
      }
    }
  }
  return uses;
}

/// The lines "- **SECTION**: `name` COUNT, ..." of the document.
Census census_in(const std::string& document) {
  Census census;
  std::istringstream lines(document);
  static const std::regex kHead(R"(^- \*\*([a-z ]+)\*\*: )");
  static const std::regex kItem(R"(`([^`]+)` (\d+))");
  for (std::string line; std::getline(lines, line);) {
    std::smatch head;
    if (!std::regex_search(line, head, kHead)) continue;
    for (auto at = std::sregex_iterator(line.begin(), line.end(), kItem); at != std::sregex_iterator();
         ++at) {
      census[head[1]][(*at)[1]] = std::stoul((*at)[2]);
    }
  }
  return census;
}

bool is_there(const std::string& section, const std::string& name) {
  if (section == "filters") return jinja::find_filter(name) != nullptr;
  if (section == "tests") return jinja::find_test(name) != nullptr;
  if (section == "functions") return jinja::find_global(name) != nullptr;
  if (section == "statements") {
    return render_jinja("{% " + name + " %}").error.find("unknown tag") == std::string::npos;
  }
  const jinja::Dict dict;
  for (const jinja::Value& object :
       {jinja::Value::string(""), jinja::Value::list({}), jinja::Value::object(jinja::Kind::kDict, &dict)}) {
    if (jinja::find_method(object, name) != nullptr) return true;
  }
  return false;
}

TEST(JinjaCorpus, TheDocumentListsWhatThereIs) {
  const Census document = census_in(read_file("docs/jinja.md"));
  for (const char* section : {"filters", "tests", "methods", "functions", "statements"}) {
    ASSERT_TRUE(document.contains(section)) << section;
    for (const auto& [name, count] : document.at(section)) EXPECT_TRUE(is_there(section, name)) << name;
    const auto refused = document.find(std::string("refused ") + section);
    if (refused == document.end()) continue;
    for (const auto& [name, count] : refused->second) {
      EXPECT_FALSE(is_there(section, name)) << name;
      EXPECT_EQ(count, 0U) << name;
    }
  }
  for (const auto functions : {jinja::text_filters(), jinja::sequence_filters(), jinja::value_filters()}) {
    for (const auto& each : functions)
      EXPECT_TRUE(document.at("filters").contains(std::string(each.name))) << each.name;
  }
  for (const auto& each : jinja::string_methods()) {
    EXPECT_TRUE(document.at("methods").contains(std::string(each.name))) << each.name;
  }
}

TEST(JinjaCorpus, RealTemplatesUseWhatTheDocumentCounts) {
  QUIRE_NEEDS_DATA(kTemplateFolder);
  std::set<std::string> sources;
  for (const auto& [name, source] : all_templates()) sources.insert(source);
  Census census;
  for (const std::string& source : sources) {
    for (const auto& [section, name] : uses_of(jinja::parse_template(source))) {
      ++census[section][name];
      EXPECT_TRUE(is_there(section, name)) << section << ": " << name;
    }
  }
  const std::string text = read_file("docs/jinja.md");
  EXPECT_NE(text.find(fmt::format("{} different templates", sources.size())), std::string::npos)
      << sources.size();
  const Census document = census_in(text);
  for (const auto& [section, counts] : census) {
    Counts told = document.at(section);
    std::erase_if(told, [](const auto& each) { return each.second == 0; });
    EXPECT_EQ(told, counts) << section;
  }
}

}  // namespace
}  // namespace quire::test
