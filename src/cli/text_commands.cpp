// tokenize, detokenize, render: the text layer alone, without weights.
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file_error.h"
#include "base/json.h"
#include "chat/chat_templates.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "serve/chat_messages.h"
#include "serve/fields.h"
#include "startup/model_files.h"
#include "tokenize/tokenizer.h"

namespace quire::cli {
namespace {

struct TextOptions {
  std::string path;
  std::optional<std::string> text;
  std::string lines;
  std::string messages;
  std::string context;
  std::string template_name;
  bool no_special = false;
  bool no_generation_prompt = false;
  bool continue_final_message = false;
};

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

const json::array& array_of(const json::value& value, const std::filesystem::path& where) {
  const json::array* array = value.if_array();
  if (array == nullptr) throw file_error(where, "a JSON array was expected");
  return *array;
}

int tokenize(const TextOptions& options) {
  const auto tokenizer = startup::load_tokenizer(options.path);
  const auto print_ids = [&](std::string_view text) {
    fmt::print("[{}]\n", fmt::join(tokenizer->encode(text, !options.no_special), ", "));
  };
  if (options.lines.empty()) {
    print_ids(options.text ? *options.text : standard_input());
    return 0;
  }
  const json::value lines = read_json_file(options.lines);
  for (const json::value& line : array_of(lines, options.lines)) {
    if (!line.is_string()) throw file_error(options.lines, "an array of strings was expected");
    print_ids(line.get_string());
  }
  return 0;
}

std::vector<TokenId> token_ids(const json::value& value, const std::filesystem::path& where,
                               const tokenize::Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (const json::value& each : array_of(value, where)) {
    json::error_code failed;
    ids.push_back(each.to_number<TokenId>(failed));
    if (failed) throw file_error(where, "arrays of token ids were expected");
    if (ids.back() < 0 || static_cast<size_t>(ids.back()) >= tokenizer.vocab_size()) {
      throw file_error(where, fmt::format("{} is not a token id; they go from 0 to {}", ids.back(),
                                          tokenizer.vocab_size() - 1));
    }
  }
  return ids;
}

int detokenize(const TextOptions& options) {
  const auto tokenizer = startup::load_tokenizer(options.path);
  if (!options.lines.empty()) {
    const json::value lists = read_json_file(options.lines);
    for (const json::value& list : array_of(lists, options.lines)) {
      const std::string text =
          tokenizer->decode(token_ids(list, options.lines, *tokenizer), options.no_special);
      fmt::print("{}\n", json::serialize(json::value(text)));
    }
    return 0;
  }
  const std::string given = options.text ? *options.text : standard_input();
  const std::filesystem::path where = "IDS";
  const std::vector<TokenId> ids = token_ids(parse_json(given, where), where, *tokenizer);
  fmt::print("{}\n", tokenizer->decode(ids, options.no_special));
  return 0;
}

/// The messages of a file in the form in which a server passes them to a template.
json::value messages_of(const std::filesystem::path& file) {
  const json::value read = read_json_file(file);
  const json::object body{{"messages", array_of(read, file)}};
  serve::Fields fields(body);
  serve::ChatPrompt prompt = serve::read_chat_prompt(fields);
  if (const auto fault = fields.finish()) throw file_error(file, fault->message);
  return std::move(prompt.context.at("messages"));
}

int render(const TextOptions& options) {
  const chat::ChatTemplates templates = startup::load_chat_templates(options.path, options.template_name);
  json::object context;
  if (!options.context.empty()) {
    const json::value given = read_json_file(options.context);
    context = JsonObject(given, options.context).raw();
  }
  context["messages"] = messages_of(options.messages);
  const bool add_prompt = !options.no_generation_prompt && !options.continue_final_message;
  // The context's own value is used unless a flag overrides it.
  if (!context.contains("add_generation_prompt") || !add_prompt)
    context["add_generation_prompt"] = add_prompt;
  serve::ChatPrompt asked{.context = std::move(context),
                          .continue_final_message = options.continue_final_message};
  const auto prompt = serve::render_chat(templates, asked);
  if (!prompt) throw Error(fmt::format("{}: {}", options.path, prompt.error().message));
  std::cout << *prompt << std::flush;
  return 0;
}

}  // namespace

void add_tokenize(const Flags& app, Command& run) {
  auto options = std::make_shared<TextOptions>();
  const Flags command = app.add_command("tokenize", "Print the token ids of a text, one JSON array per line");
  command.add_option("path", options->path, "Model directory, .gguf file, tokenizer.json or tokenizer.model")
      .required()
      .value_name("PATH");
  const Flag text = command.add_option("-p,--text", options->text, "The text; default: standard input")
                        .value_name("TEXT")
                        .may_be_empty();
  command.add_option("--lines", options->lines, "JSON file with an array of strings")
      .excludes(text)
      .value_name("FILE");
  command.add_flag("--no-special", options->no_special,
                   "Leave out the special tokens that the tokenizer adds");
  command.callback([options, &run] { run = [options] { return tokenize(*options); }; });
}

void add_detokenize(const Flags& app, Command& run) {
  auto options = std::make_shared<TextOptions>();
  const Flags command = app.add_command("detokenize", "Print the text of token ids");
  command.add_option("path", options->path, "Model directory, .gguf file, tokenizer.json or tokenizer.model")
      .required()
      .value_name("PATH");
  const Flag ids = command.add_option("-i,--ids", options->text, "JSON array of ids; default: standard input")
                       .value_name("IDS");
  command
      .add_option("--lines", options->lines,
                  "JSON file with an array of arrays; prints one JSON string per line")
      .excludes(ids)
      .value_name("FILE");
  command.add_flag("--skip-special", options->no_special, "Leave special tokens out of the text");
  command.callback([options, &run] { run = [options] { return detokenize(*options); }; });
}

void add_render(const Flags& app, Command& run) {
  auto options = std::make_shared<TextOptions>();
  const Flags command = app.add_command(
      "render", "Print the prompt that a chat template makes of messages, as the server does");
  command.add_option("path", options->path, "Model directory, .gguf or .jinja file")
      .required()
      .value_name("PATH");
  command.add_option("--messages", options->messages, "JSON file with an array of messages")
      .required()
      .value_name("FILE");
  command.add_option("--context", options->context, "JSON file with an object: tools, bos_token, ...")
      .value_name("FILE");
  command
      .add_option(
          "--template", options->template_name,
          "Name of one of the model's templates, or a file; default: tool_use with tools, else default")
      .value_name("NAME");
  const Flag no_prompt = command.add_flag("--no-generation-prompt", options->no_generation_prompt,
                                          "Do not begin the assistant's answer");
  command
      .add_flag("--continue-final-message", options->continue_final_message,
                "End with the content of the last message, for the model to continue")
      .excludes(no_prompt);
  command.callback([options, &run] { run = [options] { return render(*options); }; });
}

}  // namespace quire::cli
