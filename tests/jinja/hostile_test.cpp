#include <ctime>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "tests/jinja/render.h"
#include "tests/support/data.h"
#include "tests/support/sanitized.h"

// Templates that mean harm: each ends soon, with an error or a small result, and never crashes.
namespace quire::test {
namespace {

std::string repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

/// Wide enough that each of the templates below meets the bound it is about.
constexpr jinja::Limits kWide{
    .max_steps = 2'000'000, .max_output_bytes = 16 << 20, .max_memory_bytes = 96 << 20};

struct Hostile {
  const char* name;
  std::string source;
  const char* error;  // a part of it; empty: it renders
};

std::vector<Hostile> hostile_templates() {
  constexpr size_t kMany = 100'000;
  const char* const deep = "nests too deeply";
  const char* const steps = "too many steps";
  const char* const text = "a string that is too long";
  const char* const large = "integer too large";
  const std::string grow =
      "{% set n = namespace(s=[1]) %}{% for i in range(100000) %}{% set n.s = [n.s] %}{% endfor %}";
  const std::string graph =
      "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}";
  return {
      {"parentheses", "{{ " + repeat("(", kMany) + "1" + repeat(")", kMany) + " }}", deep},
      {"lists", "{{ " + repeat("[", kMany) + repeat("]", kMany) + " }}", deep},
      {"nots", "{{ " + repeat("not ", kMany) + "1 }}", deep},
      {"signs", "{{ " + repeat("-", kMany) + "1 }}", deep},
      {"ifs", repeat("{% if 1 %}", kMany), deep},
      {"conditions", "{{ " + repeat("1 if 0 else ", kMany) + "2 }}", deep},
      {"attributes", "{{ x" + repeat(".y", kMany) + " }}", deep},
      {"filters", "{{ 'a'" + repeat("|upper", kMany) + " }}", deep},
      {"calls", "{{ x" + repeat("()", kMany) + " }}", deep},
      {"a long sum", "{{ 1" + repeat("+1", kMany) + " }}", ""},
      {"nested ranges", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
       steps},
      {"much output",
       "{% for a in range(100000) %}{% for b in range(1000) %}aaaaaaaaaaaaaaaa{% endfor %}{% endfor %}", ""},
      {"doubling",
       "{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}", text},
      {"doubling with ~",
       "{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}", text},
      {"doubling a list",
       "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}", steps},
      {"a deep list as text", grow + "{{ n.s }}", deep},
      {"a deep list as JSON", grow + "{{ n.s|tojson }}", deep},
      {"a deep list compared", grow + "{% set m = n.s %}{{ [m] == [[m]] }}", deep},
      {"a graph as text", graph + "{{ n.s }}", steps},
      {"a graph as JSON", graph + "{{ n.s|tojson }}", steps},
      {"a cycle", "{% set n = namespace() %}{% set n.n = n %}{{ n }}", deep},
      {"repeat", "{{ 'a' * 10**9 }}", text},
      {"repeat a list", "{{ [1] * 10**9 }}", steps},
      {"repeat a list by far more", "{{ [3, 1] * 18446744073709551615 }}", "cannot fit"},
      {"repeat nothing", "{{ '' * 10**30 }}{{ '' * 10**18 }}", "cannot fit"},
      {"powers", "{{ 10**10**10 }}", large},
      {"endless macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", deep},
      {"macro tree", "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
       steps},
      {"endless loop()", "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}", deep},
      {"endless caller", "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
       deep},
      {"enormous slices", "{{ 'abc'[-10**30:10**30:10**29] }}{{ [1,2][10**30:-10**30:-10**30] }}", ""},
      {"slices of long text", "{% set s = 'é' * 4000000 %}{% for i in range(9999) %}{{ s[i] }}{% endfor %}",
       steps},
      {"center", "{{ 'a'|center(10**9) }}", text},
      {"ljust", "{{ 'a'.ljust(10**18) }}", text},
      {"zfill", "{{ 'a'.zfill(10**12) }}", text},
      {"indent", "{{ 'a\nb'|indent(10**9) }}", text},
      {"indent of many lines", "{{ ('\\n' * 999999)|indent(100, true, true) }}", ""},
      {"%d", "{{ '%1000000000d' % 1 }}", text},
      {"%*d", "{{ '%*d' % (10**9, 1) }}", text},
      {"%.f", "{{ '%.1000000000f' % 1 }}", ""},
      {"{:width}", "{{ '{:1000000000}'.format(1) }}", text},
      {"{:{}}", "{{ '{:{:{:{}}}}'.format(1,2,3,4) }}", "recursion"},
      {"{0}{0}", "{{ ('{0}' * 100000).format('a' * 10000) }}", text},
      {"tojson's indent", "{{ [1]|tojson(indent=10**9) }}", text},
      {"range", "{{ range(100001) }}", "Range too big"},
      {"a wide range", "{{ range(10**30) }}", large},
      {"replace", "{{ ('a' * 99999)|replace('a', 'b' * 99999) }}", text},
      {"join", "{{ range(100000)|join('a' * 9999) }}", text},
      {"a bad search", "{{ ('a' * 4000000).find('a' * 2000000 + 'b') }}", ""},
      {"a bad search backwards", "{{ ('a' * 4000000).rfind('b' + 'a' * 2000000) }}", ""},
      {"splits", "{{ ('a ' * 4000000).split()|length }}", steps},
      {"characters", "{{ ('a' * 8000000)|list|length }}", steps},
      {"sorts", "{% for i in range(999) %}{{ range(100000)|sort|length }}{% endfor %}", steps},
      {"escapes", "{% for i in range(999) %}{{ ('\"' * 4000000)|tojson|length }}{% endfor %}", steps},
      {"many arguments",
       "{% macro m() %}{{ varargs }}{% endmacro %}{% for i in range(999) %}{{ m(*range(99999)) }}"
       "{% endfor %}",
       steps},
      {"a long number", "{{ " + repeat("9", kMany) + " }}", large},
      {"a long number in text", "{{ ('9' * 999999)|int }}", large},
      {"a long affix, often",
       "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set x = s.removeprefix(s) %}{% endfor %}",
       steps},
      {"a long text, the same, often",
       "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set x = s is sameas s %}{% endfor %}",
       steps},
      {"a long number, often",
       "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set x = s|int + s|float %}{% endfor %}",
       steps},
      {"a long text's case, often",
       "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set x = s is lower %}{% endfor %}", steps},
      {"nothing to escape, often",
       "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set x = s|e %}{% endfor %}", steps},
      {"strftime", "{{ strftime_now('%1000000000d') }}", ""},
      {"endless block", "{% block a %}{{ self.a() }}{% endblock %}", deep},
      {"block tree",
       "{% block a %}{% endblock %}{% block b %}{{ self.a() }}{% for i in range(99999) %}"
       "{{ self.a() }}{% endfor %}{% endblock %}{% for i in range(99999) %}{{ self.b() }}{% endfor %}",
       steps},
  };
}

class JinjaHostile : public testing::TestWithParam<size_t> {};

TEST_P(JinjaHostile, EndsSoon) {
  const Hostile test = hostile_templates()[GetParam()];
  SCOPED_TRACE(test.name);
  const Rendering wide = render_jinja(test.source, {}, {}, kWide);
  if (*test.error != '\0') {
    EXPECT_NE(wide.error.find(test.error), std::string::npos) << wide.error << wide.text.substr(0, 100);
    EXPECT_GT(wide.line, 0U);
  }
  // Within the bounds of a short conversation it renders or is refused, soon in any case.
  const std::clock_t begin = std::clock();
  const Rendering got = render_jinja(test.source);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LE(got.text.size(), jinja::Limits{}.max_output_bytes);
  EXPECT_TRUE(got.failed || *test.error == '\0') << got.text.substr(0, 100);
  EXPECT_LT(seconds, kSanitized ? 10.0 : 0.3);  // up to 0.1 s of work, on a machine that may be slow
}

INSTANTIATE_TEST_SUITE_P(All, JinjaHostile, testing::Range<size_t>(0, hostile_templates().size()));

TEST(JinjaLimits, AreTheCallers) {
  const std::string source = "{% for i in range(100) %}{{ 'ab' ~ i }}{% endfor %}";
  EXPECT_FALSE(render_jinja(source).failed);
  EXPECT_TRUE(render_jinja(source, {}, {}, {.max_steps = 100}).failed);
  EXPECT_TRUE(render_jinja(source, {}, {}, {.max_output_bytes = 100}).failed);
  EXPECT_TRUE(render_jinja(source, {}, {}, {.max_memory_bytes = 1000}).failed);
  EXPECT_TRUE(render_jinja("{{ ((1,),) }}", {}, {}, {.max_depth = 2}).failed);
}

TEST(JinjaLimits, BuildingALongTextPieceByPieceIsLinear) {
  // Copied anew at every step these would take 2 GB.
  const std::string plain =
      "{% set n = namespace(s='') %}{% for i in range(20000) %}"
      "{% set n.s = n.s + '0123456789' %}{% endfor %}{{ n.s|length }}";
  EXPECT_EQ(render_jinja(plain).text, "200000");
  const std::string mixed =
      "{% set n = namespace(s='') %}{% for i in range(20000) %}"
      "{% set n.s = n.s + ('a' ~ i)|upper + '-' %}{% endfor %}{{ n.s|length }}";
  EXPECT_EQ(render_jinja(mixed).text, "128890");
}

TEST(JinjaHostile, BrokenTemplatesNeverCrash) {
  QUIRE_NEEDS_DATA("chat-templates");
  const json::object context = {
      {"messages",
       {{{"role", "system"}, {"content", "s"}},
        {{"role", "user"}, {"content", "é"}},
        {{"role", "assistant"},
         {"content", nullptr},
         {"tool_calls", json::array{{{"function", {{"name", "f"}}}}}}}}},
      {"tools",
       json::array{{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", json::object()}}}}}},
      {"add_generation_prompt", true}};
  const std::string_view pieces[] = {"{%",   "%}", "{{", "}}",   "|", "(",  ")", "[", "-",  "not ",
                                     "else", "'",  "\\", "loop", "é", "**", ":", "}", "{#", "\n"};
  SplitMix64 random(11);
  size_t rendered = 0;
  size_t refused = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(data_dir() / "chat-templates" / "llama.cpp-templates")) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = read_file(entry.path());
    for (int i = 0; i < (kSanitized ? 150 : 400); ++i) {
      std::string broken = source;
      for (uint64_t k = random.below(4); k > 0; --k) {
        const size_t at = random.below(broken.size());
        if (random.below(2) == 0) {
          broken[at] = static_cast<char>(random.below(256));
        } else {
          broken.replace(at, random.below(6), pieces[random.below(std::size(pieces))]);
        }
      }
      if (random.below(3) == 0) broken.resize(random.below(broken.size()));
      // The renderer is handed valid UTF-8 only; ChatTemplate::parse sees to that.
      const Rendering got = render_jinja(repair_utf8(broken), context, {}, {.max_steps = 100'000});
      ++(got.failed ? refused : rendered);
    }
  }
  EXPECT_GT(rendered, kSanitized ? 40U : 100U);
  EXPECT_GT(refused, kSanitized ? 750U : 2000U);
}

}  // namespace
}  // namespace quire::test
