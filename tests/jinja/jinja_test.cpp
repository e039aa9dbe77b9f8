#include <gtest/gtest.h>

#include "tests/jinja/render.h"

namespace quire::test {
namespace {

std::string error_of(std::string_view source, const json::object& context = {}) {
  const Rendering got = render_jinja(source, context);
  EXPECT_TRUE(got.failed) << source << " gives " << got.text;
  return got.error;
}

TEST(Jinja, TrimsBlocksAndStripsTheirLines) {
  EXPECT_EQ(render_jinja("a\n  {% if true %}\n  b\n  {% endif %}\nc\n").text, "a\n  b\nc");
  EXPECT_EQ(render_jinja("a\n  {%+ if true %}\nb{% endif +%}\nc").text, "a\n  b\nc");
  EXPECT_EQ(render_jinja("x  {{- 1 -}}  \n y {{ 2 }}\nz").text, "x1y 2\nz");
  EXPECT_EQ(render_jinja("a {# b #}\n  {#- c #}\r\nd\re").text, "a d\ne");
  EXPECT_EQ(render_jinja("{% raw %}\n {{ x }} {% endraw %}\n.").text, "\n {{ x }} .");
  EXPECT_EQ(render_jinja("a\n\n").text, "a\n");
}

TEST(Jinja, WithoutTrimming) {
  const jinja::Whitespace plain{.trim_blocks = false, .lstrip_blocks = false};
  EXPECT_EQ(render_jinja("a\n  {% if true %}\n  b\n  {% endif %}\nc", {}, plain).text, "a\n  \n  b\n  \nc");
}

TEST(Jinja, CountsCharactersNotBytes) {
  EXPECT_EQ(render_jinja("{{ '日本語😀'|length }}{{ '日本語'[1] }}{{ 'añb'[-2:] }}").text, "4本ñb");
  EXPECT_EQ(render_jinja("{{ '日本'.center(6, '·') }}{{ 'é'.zfill(3) }}{{ '日本語'.find('語') }}").text,
            "··日本··00é2");
}

TEST(Jinja, ErrorsHaveTheirPlace) {
  const Rendering got = render_jinja("ä\n  {{ 1 + [] }}");
  EXPECT_EQ(got.error, "unsupported operand type(s) for +: 'int' and 'list'");
  EXPECT_EQ(got.line, 2U);
  EXPECT_EQ(got.column, 6U);
  const Rendering syntax = render_jinja("{% if x %}\né{{ (1 }}");
  EXPECT_EQ(syntax.error, "unexpected '}', expected ')'");
  EXPECT_EQ(syntax.line, 2U);
  EXPECT_EQ(syntax.column, 8U);
  EXPECT_EQ(render_jinja("{% macro m() %}\n{{ nix.x }}{% endmacro %}\n\n{{ m() }}").line, 2U);
}

TEST(Jinja, UndefinedValuesSayWhatTheyAre) {
  const json::object context = {{"d", {{"a", 1}}}, {"l", {1}}};
  EXPECT_EQ(error_of("{{ nix.x }}", context), "'nix' is undefined");
  EXPECT_EQ(error_of("{{ d.nix.x }}", context), "'dict object' has no attribute 'nix'");
  EXPECT_EQ(error_of("{{ l[7].x }}", context), "list object has no element 7");
  EXPECT_EQ(error_of("{{ none.x.y }}", context), "'None' has no attribute 'x'");
  EXPECT_EQ(error_of("{{ nix() }}", context), "'nix' is undefined");
}

TEST(Jinja, WhatChatTemplatesDoNotNeedIsRefusedByName) {
  for (const char* name :
       {"urlize", "pprint", "wordwrap", "xmlattr", "filesizeformat", "urlencode", "batch"}) {
    const std::string expected = "No filter named '" + std::string(name) + "'.";
    EXPECT_EQ(error_of("{{ 'x'|" + std::string(name) + " }}"), expected);
    EXPECT_EQ(error_of("{{ ['x']|map('" + std::string(name) + "')|list }}"), expected);
  }
  EXPECT_EQ(error_of("{{ 'x'.translate({}) }}"), "'str object' has no attribute 'translate'");
  EXPECT_EQ(error_of("{{ 'x'.swapcase() }}"), "'str object' has no attribute 'swapcase'");
  EXPECT_EQ(error_of("{{ cycler(1) }}"), "'cycler' is undefined");
  EXPECT_EQ(error_of("{% autoescape true %}{% endautoescape %}"), "Encountered unknown tag 'autoescape'.");
}

TEST(Jinja, TheSandboxForbidsChanges) {
  const json::object context = {{"d", {{"a", 1}}}, {"l", {1}}};
  EXPECT_EQ(error_of("{{ l.append(2) }}", context),
            "access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(error_of("{{ d.update(b=1) }}", context),
            "access to attribute 'update' of 'dict' object is unsafe.");
  EXPECT_EQ(error_of("{{ ''.__class__.__mro__ }}"),
            "access to attribute '__class__' of 'str' object is unsafe.");
  EXPECT_EQ(error_of("{% include 'x' %}"), "'include' needs other templates, which do not exist here");
}

TEST(Jinja, RaisedExceptionsAreVerbatim) {
  EXPECT_EQ(error_of("{{ raise_exception('Only user roles: ' ~ 1) }}"), "Only user roles: 1");
}

TEST(Jinja, IntegersWiderThan64BitsAreKept) {
  const json::object context = {{"u", UINT64_MAX}, {"m", INT64_MIN}};
  EXPECT_EQ(render_jinja("{{ u }} {{ u|tojson }} {{ u + 1 }} {{ m - 1 }}", context).text,
            "18446744073709551615 18446744073709551615 18446744073709551616 -9223372036854775809");
  EXPECT_EQ(error_of("{{ 10 ** 40 }}"), "integer too large");
}

TEST(Jinja, SpecialTokensAreNoTemplateText) {
  // What a context value says is never parsed.
  const json::object context = {{"x", "{{ 1 + 1 }}{% raw %}"}};
  EXPECT_EQ(render_jinja("{{ x }}", context).text, "{{ 1 + 1 }}{% raw %}");
}

TEST(Jinja, ReferencesToNamespacesMayFormCycles) {
  EXPECT_EQ(render_jinja("{% set a = namespace() %}{% set a.a = [a] %}{{ a.a[0].a[0] is defined }}").text,
            "True");
}

TEST(Jinja, GenerationBlocksAreTheirBody) {
  EXPECT_EQ(render_jinja("a{% generation %}{{ 1 }}b{% endgeneration %}c").text, "a1bc");
}

TEST(Jinja, StrftimeNow) {
  EXPECT_EQ(render_jinja("{{ strftime_now('%d %b %Y, %A %-d %%') }}").text, "10 Jul 2025, Thursday 10 %");
}

TEST(Jinja, BreaksBelongToTheLoopOfTheirMacro) {
  EXPECT_EQ(error_of("{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}"),
            "'break' outside a loop");
}

}  // namespace
}  // namespace quire::test
