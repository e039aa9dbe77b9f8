#include "tokenize/gguf_pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tokenize/byte_level.h"

namespace quire::tokenize {
namespace {

using Step = GgufPreTokenizer::Step;
using Kind = Step::Kind;

constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array kGpt2 = {Step{Kind::kByteLevelSplit}};
constexpr std::array kLlama3 = {Step{Kind::kSplit, kLlama3Regex}, Step{Kind::kByteLevel}};
constexpr std::array kQwen2 = {Step{Kind::kSplit, kQwen2Regex}, Step{Kind::kByteLevel}};
constexpr std::array kQwen35 = {Step{Kind::kSplit, kQwen35Regex}, Step{Kind::kByteLevel}};
constexpr std::array kTekken = {Step{Kind::kSplit, kTekkenRegex}, Step{Kind::kByteLevel}};
constexpr std::array kGpt4o = {Step{Kind::kSplit, kGpt4oRegex}, Step{Kind::kByteLevel}};
constexpr std::array kDigits = {Step{Kind::kDigits}, Step{Kind::kByteLevelSplit}};
constexpr std::array kFalcon = {Step{Kind::kPunctuation}, Step{Kind::kByteLevelSplit}, Step{Kind::kDigitRuns},
                                Step{Kind::kSplit, "[0-9][0-9][0-9]"}};
// llama.cpp's pre-tokenizer for files that name none.
constexpr std::array kDefault = {Step{Kind::kSplit, R"([\p{P}\$\+<=>\^~\|]+)"},
                                 Step{Kind::kSplit, kGpt2Pattern}, Step{Kind::kSplit, R"(\p{N}+)"},
                                 Step{Kind::kSplit, "[0-9][0-9][0-9]"}, Step{Kind::kByteLevel}};
constexpr std::array kDeepseekLlm = {
    Step{Kind::kSplit, R"([\r\n])"},
    Step{
        Kind::kSplit,
        R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)"},
    Step{Kind::kSplit, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)"},
    Step{Kind::kSplit, R"(\s+$)"},
    Step{Kind::kSplit, R"([一-龥ࠀ-一가-퟿]+)"},
    Step{Kind::kDigits},
    Step{Kind::kByteLevel}};
constexpr std::array kDeepseekCoder = {Step{Kind::kSplit, R"([\r\n])"},
                                       Step{Kind::kSplit, R"(\s?\p{L}+)"},
                                       Step{Kind::kSplit, R"(\s?\p{P}+)"},
                                       Step{Kind::kSplit, R"([一-龥ࠀ-一가-퟿]+)"},
                                       Step{Kind::kDigits},
                                       Step{Kind::kByteLevel}};
constexpr std::array kDeepseek3 = {
    Step{Kind::kSplit, R"(\p{N}{1,3})"}, Step{Kind::kSplit, R"([一-龥぀-ゟ゠-ヿ]+)"},
    Step{
        Kind::kSplit,
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    Step{Kind::kByteLevel}};

using Name = std::string_view;
constexpr std::array<Name, 6> kLlama3Names = {"llama-bpe", "llama3",    "llama-v3",
                                              "falcon3",   "falcon-h1", "pixtral"};
constexpr std::array<Name, 4> kLlama3PlainNames = {"smaug-bpe", "dbrx", "glm4", "chatglm-bpe"};
constexpr std::array<Name, 1> kQwen2Names = {"qwen2"};
constexpr std::array<Name, 3> kQwen2PlainNames = {"deepseek-r1-qwen", "stablelm2", "megrez"};
constexpr std::array<Name, 1> kQwen35Names = {"qwen35"};
constexpr std::array<Name, 2> kGpt2Names = {"gpt-2", "phi-2"};
constexpr std::array<Name, 3> kNeoxNames = {"olmo", "mpt", "modern-bert"};
constexpr std::array<Name, 6> kDigitsNames = {"starcoder", "refact",    "smollm",
                                              "codeshell", "command-r", "minerva-7b"};
constexpr std::array<Name, 1> kFalconNames = {"falcon"};
constexpr std::array<Name, 1> kDeepseekLlmNames = {"deepseek-llm"};
constexpr std::array<Name, 1> kDeepseekCoderNames = {"deepseek-coder"};
constexpr std::array<Name, 1> kDeepseek3Names = {"deepseek-v3"};
constexpr std::array<Name, 1> kTekkenNames = {"tekken"};
constexpr std::array<Name, 2> kGpt4oNames = {"gpt-4o", "llama4"};
constexpr std::array<Name, 2> kDefaultNames = {"default", ""};

constexpr std::array kAll = {
    GgufPreTokenizer{.names = kLlama3Names, .steps = kLlama3, .ignore_merges = true, .add_bos = true},
    GgufPreTokenizer{.names = kLlama3PlainNames, .steps = kLlama3},
    GgufPreTokenizer{.names = kQwen2Names, .steps = kQwen2, .nfc = true},
    GgufPreTokenizer{.names = kQwen2PlainNames, .steps = kQwen2},
    GgufPreTokenizer{.names = kQwen35Names, .steps = kQwen35, .nfc = true},
    GgufPreTokenizer{.names = kGpt2Names, .steps = kGpt2},
    GgufPreTokenizer{.names = kNeoxNames, .steps = kGpt2, .nfc = true},
    GgufPreTokenizer{.names = kDigitsNames, .steps = kDigits},
    GgufPreTokenizer{.names = kFalconNames, .steps = kFalcon},
    GgufPreTokenizer{.names = kDeepseekLlmNames, .steps = kDeepseekLlm},
    GgufPreTokenizer{.names = kDeepseekCoderNames, .steps = kDeepseekCoder},
    GgufPreTokenizer{.names = kDeepseek3Names, .steps = kDeepseek3},
    GgufPreTokenizer{.names = kTekkenNames, .steps = kTekken, .ignore_merges = true, .add_bos = true},
    GgufPreTokenizer{.names = kGpt4oNames, .steps = kGpt4o},
    GgufPreTokenizer{.names = kDefaultNames, .steps = kDefault},
};

json::object step_json(const Step& step) {
  switch (step.kind) {
    case Kind::kSplit:
      return {{"type", "Split"},
              {"pattern", {{"Regex", step.regex}}},
              {"behavior", "Isolated"},
              {"invert", false}};
    case Kind::kDigits:
    case Kind::kDigitRuns:
      return {{"type", "Digits"}, {"individual_digits", step.kind == Kind::kDigits}};
    case Kind::kPunctuation:
      return {{"type", "Punctuation"}, {"behavior", "Contiguous"}};
    case Kind::kByteLevel:
    case Kind::kByteLevelSplit:
      return {{"type", "ByteLevel"},
              {"add_prefix_space", false},
              {"trim_offsets", true},
              {"use_regex", step.kind == Kind::kByteLevelSplit}};
  }
  return {};
}

/// The steps of a pre_tokenizer, each a text that two have in common only if they do the same.
void signature(const JsonObject& object, std::vector<std::string>& out) {
  const std::string type = object.string("type");
  if (type == "Sequence") {
    const json::value* list = object.find("pretokenizers");
    if (list == nullptr || !list->is_array()) throw object.error("pretokenizers", "an array was expected");
    for (const json::value& each : list->get_array()) {
      signature(JsonObject(each, object.where(), object.path("pretokenizers")), out);
    }
  } else if (type == "Split") {
    const JsonObject pattern = object.object("pattern");
    out.push_back(fmt::format("Split {} {} {}", pattern.string_or("Regex", ""), object.string("behavior"),
                              object.boolean_or("invert", false)));
  } else if (type == "ByteLevel") {
    out.push_back(fmt::format("ByteLevel {} {}", object.boolean_or("add_prefix_space", true),
                              object.boolean_or("use_regex", true)));
  } else if (type == "Digits") {
    out.push_back(fmt::format("Digits {}", object.boolean_or("individual_digits", false)));
  } else {
    out.push_back(fmt::format("{} {}", type, object.string_or("behavior", "")));
  }
}

std::vector<std::string> signature(const JsonObject& object) {
  std::vector<std::string> out;
  signature(object, out);
  return out;
}

}  // namespace

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  const auto* found = std::find_if(kAll.begin(), kAll.end(), [&](const GgufPreTokenizer& pre) {
    return std::find(pre.names.begin(), pre.names.end(), name) != pre.names.end();
  });
  return found == kAll.end() ? nullptr : found;
}

const GgufPreTokenizer* match_gguf_pre_tokenizer(const JsonObject& root) {
  if (!root.has("pre_tokenizer")) return nullptr;
  const auto wanted = signature(root.object("pre_tokenizer"));
  const bool ignore_merges = root.object("model").boolean_or("ignore_merges", false);
  const bool nfc = root.has("normalizer") && root.object("normalizer").string("type") == "NFC";
  const GgufPreTokenizer* best = nullptr;
  for (const GgufPreTokenizer& pre : kAll) {
    const json::value own = pre_tokenizer_json(pre);
    if (pre.ignore_merges != ignore_merges || signature(JsonObject(own, root.where())) != wanted) continue;
    if (pre.nfc == nfc) return &pre;
    if (best == nullptr) best = &pre;
  }
  return best;
}

json::object pre_tokenizer_json(const GgufPreTokenizer& pre) {
  if (pre.steps.size() == 1) return step_json(pre.steps.front());
  json::array steps;
  for (const Step& step : pre.steps) steps.push_back(step_json(step));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

}  // namespace quire::tokenize
