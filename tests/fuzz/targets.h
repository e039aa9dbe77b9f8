#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

// What a hostile file or client can reach, one function each: any bytes must give a result or a clear error.
// libFuzzer drives them (`./dev fuzz NAME [SECONDS]`), and fuzz_test runs what it found before, kept in
// tests/fuzz/regressions/NAME, in every build.
namespace quire::fuzz {

struct Target {
  std::string_view name;
  /// What quire refuses is quire::Error, caught inside; anything else that leaves is a bug.
  void (*run)(std::string_view input);
  /// Inputs beyond are not worth a fuzzer's time: libFuzzer's -max_len.
  size_t max_bytes;
};

std::span<const Target> targets();
/// Null if there is none of that name.
const Target* find_target(std::string_view name);

void safetensors(std::string_view input);
/// A GGUF file: its values, its tensors' numbers, and its model's config.
void gguf(std::string_view input);
void model_config(std::string_view input);
void tokenizer_json(std::string_view input);
/// A tokenizer.model: SentencePiece's, or ranks of tiktoken, however many.
void tokenizer_model(std::string_view input);
/// A template, rendered with a conversation.
void template_source(std::string_view input);
/// A template, a NUL byte, and the context that it is rendered with, as JSON.
void template_render(std::string_view input);
/// The bytes of one connection.
void http_request(std::string_view input);
/// The body of a request: as a completion, as a chat, and to /tokenize and /detokenize.
void json_body(std::string_view input);
/// A JSON Schema, and a structural tag.
void schema(std::string_view input);
/// A regular expression, and a grammar of llama.cpp's.
void grammar_text(std::string_view input);
/// A decision log, or what follows its first line: told, made again, and shown as a page.
void decision_log(std::string_view input);
// Several files in one, see parts.h.
/// A model.safetensors.index.json and the two files beside it, "1.safetensors" and "2.safetensors".
void safetensors_index(std::string_view input);
/// llama2.c's tokenizer.bin and checkpoint, converted.
void llama2c(std::string_view input);
/// tokenizer_config.json, added_tokens.json and special_tokens_map.json beside vocabularies of both kinds,
/// and the chat templates in them.
void tokenizer_config(std::string_view input);
/// A prefix cache (--prefix-cache-file), put into a pool.
void prefix_file(std::string_view input);
/// Packed weights (--pack-cache).
void pack_cache(std::string_view input);
/// A trace of requests, of any form.
void trace(std::string_view input);
/// A cost model (quire calibrate), read, used and written again.
void cost_file(std::string_view input);
/// A step log (--step-log), or what follows its first line.
void step_log(std::string_view input);

}  // namespace quire::fuzz
