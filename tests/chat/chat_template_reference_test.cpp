#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "chat/chat_templates.h"
#include "tests/jinja/reference.h"
#include "tests/jinja/render.h"
#include "tests/support/data.h"

// Against Hugging Face transformers' own renderings: the fixture that chat_template_reference.py made.
namespace quire::test {
namespace {

Expected<std::string> render_conversation(const chat::ChatTemplates& parsed, json::object context) {
  return context.erase("continue_final_message") > 0
             ? parsed.render_open(std::move(context), kPinnedClock.now)
             : parsed.render(std::move(context), kPinnedClock.now);
}

TEST(ChatTemplateReference, EveryTemplateWithEveryConversation) {
  QUIRE_NEEDS_DATA(kTemplateFolder);
  const json::value fixture = read_json_file("tests/chat/fixtures/chat_template_reference.json");
  const std::map<std::string, std::string> templates = all_templates();
  size_t rendered = 0;
  size_t raised = 0;
  for (const auto& [name, outcomes] : fixture.at("outcomes").as_object()) {
    const auto source = templates.find(std::string(name));
    ASSERT_NE(source, templates.end()) << name;
    const chat::ChatTemplates parsed(
        chat::ChatTemplate::parse(source->second, std::string(name), fixture.at("tokens").as_object()));
    size_t i = 0;
    for (const auto& [title, conversation] : fixture.at("conversations").as_object()) {
      const Expected<std::string> got = render_conversation(parsed, conversation.as_object());
      const json::value& expected = outcomes.at(i++);
      SCOPED_TRACE(fmt::format("{} / {}", std::string_view(name), std::string_view(title)));
      EXPECT_EQ(got.has_value(), !expected.is_null()) << (got ? *got : got.error().message);
      if (!got || expected.is_null()) {
        raised += got ? 0 : 1;
        continue;
      }
      ++rendered;
      EXPECT_EQ(got->size(), expected.at(0).to_number<size_t>()) << *got;
      EXPECT_EQ(fnv1a<uint64_t>(*got), text_of(expected.at(1))) << *got;
    }
  }
  EXPECT_GE(rendered, 1500U);
  EXPECT_GE(raised, 300U);
  RecordProperty("rendered", static_cast<int>(rendered));
  RecordProperty("raised", static_cast<int>(raised));
}

}  // namespace
}  // namespace quire::test
