// logits, convert, make-model: models without an engine.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "base/json.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "formats/convert_gguf.h"
#include "formats/convert_llama2c.h"
#include "formats/gguf.h"
#include "formats/json_file.h"
#include "formats/make_model.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "model/kv_groups.h"
#include "startup/model_files.h"
#include "startup/model_options.h"

namespace quire::cli {
namespace {

/// A safetensors file, whose first 8 bytes say how long what follows is.
constexpr FileKind kLogits{"file of logits", "{\"logits\":{\"dtype\":\"F32\"", 8};

struct LogitsOptions {
  startup::ModelOptions model;
  std::string ids_file;
  std::string output;
  uint32_t chunk = 0;
};

/// The rows of {"input_ids": [[...], ...]}: at least one, all of one length, every id in the vocabulary.
std::vector<std::vector<TokenId>> read_rows(const std::string& file, uint32_t vocab) {
  const json::value parsed = read_json_file(file);
  const JsonObject root(parsed, file);
  const json::value* ids = root.find("input_ids");
  if (ids == nullptr || !ids->is_array() || ids->get_array().empty()) {
    throw root.error("input_ids", "a non-empty array of arrays of token ids was expected");
  }
  std::vector<std::vector<TokenId>> rows;
  for (const json::value& row : ids->get_array()) {
    if (!row.is_array() || row.get_array().empty())
      throw root.error("input_ids", "a row is no array, or empty");
    auto& tokens = rows.emplace_back();
    for (const json::value& id : row.get_array()) {
      json::error_code failed;
      const auto token = id.to_number<int64_t>(failed);
      if (failed || token < 0 || token >= vocab) {
        throw root.error("input_ids", fmt::format("an id is not in [0, {})", vocab));
      }
      tokens.push_back(static_cast<TokenId>(token));
    }
    if (tokens.size() != rows.front().size()) throw root.error("input_ids", "rows differ in length");
  }
  return rows;
}

int logits(const LogitsOptions& options) {
  check_output_file(options.output, kLogits);
  const model::ModelConfig config = startup::config_of(options.model);
  const uint32_t vocab = config.vocab_size;
  const auto rows = read_rows(options.ids_file, vocab);
  const auto length = static_cast<uint32_t>(rows.front().size());
  if (length > config.max_positions) {
    throw Error(fmt::format("{}: rows of {} tokens, and the model has {} positions", options.ids_file, length,
                            config.max_positions));
  }
  const auto model = startup::load_model(options.model, config, length);
  constexpr uint32_t kBlockSize = 16;
  const uint32_t blocks = (length + kBlockSize - 1) / kBlockSize;
  const auto num_groups = static_cast<uint32_t>(model::group_layers(config).windows.size());
  backend::cpu::KvCache cache(config, model->decoder->compute_dtype(), num_groups * blocks, kBlockSize);
  const auto tables = model::consecutive_tables(num_groups, blocks, 0);
  const uint32_t chunk = options.chunk > 0 ? options.chunk : length;

  Buffer out(rows.size() * length * vocab * sizeof(float));
  float* next = out.as<float>();
  Progress progress("logits", rows.size() * length);
  for (const auto& row : rows) {
    for (uint32_t at = 0; at < length; at += chunk) {
      const uint32_t count = std::min(chunk, length - at);
      const decoder::BatchSeq seq{count, at, tables, count};
      const auto part =
          model->decoder->forward(model->context, cache, std::span(row).subspan(at, count), {&seq, 1});
      next = std::copy(part.begin(), part.end(), next);
      progress.advance(count);
    }
  }
  const TensorView tensor{
      DType::kF32,
      {static_cast<int64_t>(rows.size()), static_cast<int64_t>(length), static_cast<int64_t>(vocab)},
      out.data()};
  formats::write_safetensors(options.output, {{"logits", tensor}});
  return 0;
}

struct ConvertOptions {
  std::string in;
  std::string out;
  std::string outtype = "auto";
  std::string tokenizer;
  bool overwrite = false;
};

/// A file or a non-empty directory is not overwritten by default. Anything else, such as /dev/stdout, is
/// written to.
void refuse_existing(const std::filesystem::path& out) {
  constexpr std::string_view kFlag = "--overwrite writes it anyway";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(out, ignored)) {
    throw file_error(out, fmt::format("the file exists already; {}", kFlag));
  }
  if (std::filesystem::is_directory(out, ignored) && !std::filesystem::is_empty(out, ignored)) {
    throw file_error(out, fmt::format("the directory exists already and is not empty; {}", kFlag));
  }
}

constexpr std::string_view kFloatTypes = "auto, f32, f16, bf16";

std::optional<DType> float_outtype(const std::string& name) {
  if (name == "auto") return std::nullopt;
  const auto dtype = parse_dtype(name);
  if (!dtype || !is_float(*dtype)) {
    throw Error(name == "q8_0"
                    ? fmt::format("--outtype: q8_0 is for a GGUF file; a directory may have {}", kFloatTypes)
                    : fmt::format("--outtype: '{}' is not one of {}, q8_0", name, kFloatTypes));
  }
  return dtype;
}

void convert_from_gguf(const ConvertOptions& options) {
  const auto dtype = float_outtype(options.outtype);
  const std::filesystem::path out = options.out;
  // The tokenizer first: if it cannot be written, nothing is.
  const tokenize::TokenizerFiles files =
      tokenize::huggingface_files(startup::read_gguf_vocabulary(formats::Gguf::open(options.in)), options.in);
  formats::gguf_to_directory(options.in, out, dtype);
  if (files.tokenizer_config)
    formats::write_json_file(out / "tokenizer_config.json", *files.tokenizer_config);
  if (files.tokenizer_json) formats::write_json_file(out / "tokenizer.json", *files.tokenizer_json);
  if (files.tokenizer_model) formats::write_binary_file(out / "tokenizer.model", *files.tokenizer_model);
}

void convert_to_gguf(const ConvertOptions& options) {
  const model::ModelConfig config = formats::load_model_config(options.in);
  const formats::GgmlType* type = formats::find_ggml_type(formats::kGgmlQ8_0);
  if (options.outtype != "q8_0") {
    const DType dtype = float_outtype(options.outtype).value_or(config.dtype);
    type = formats::find_ggml_type(dtype == DType::kF32   ? formats::kGgmlF32
                                   : dtype == DType::kF16 ? formats::kGgmlF16
                                                          : formats::kGgmlBF16);
  }
  const tokenize::GgufVocabulary vocabulary =
      tokenize::gguf_vocabulary(options.in, config.vocab_size, config.bos, config.eos);
  formats::directory_to_gguf(options.in, config, options.out, *type,
                             startup::vocabulary_metadata(vocabulary));
}

int convert(const ConvertOptions& options) {
  std::error_code ignored;
  const bool from_directory = std::filesystem::is_directory(options.in, ignored);
  if (from_directory || !std::filesystem::exists(options.in, ignored)) startup::checked_model(options.in);
  const bool from_checkpoint = !from_directory && !formats::is_gguf_file(options.in);
  if (!from_checkpoint && !options.tokenizer.empty()) {
    throw Error("--tokenizer: changes nothing for a model that has its own; it is for llama2.c checkpoints");
  }
  if (from_checkpoint && options.outtype != "auto") {
    throw Error("--outtype: changes nothing for a llama2.c checkpoint, which becomes f32");
  }
  if (from_directory && !options.out.ends_with(".gguf")) {
    throw Error(fmt::format("{}: a directory becomes a file whose name ends in .gguf", options.out));
  }
  if (!options.overwrite) refuse_existing(options.out);
  if (from_directory) {
    check_output_file(options.out);
  } else {
    check_output_directory(options.out);
  }
  if (formats::is_gguf_file(options.in)) {
    convert_from_gguf(options);
  } else if (from_directory) {
    convert_to_gguf(options);
  } else {
    const auto beside = std::filesystem::path(options.in).parent_path() / "tokenizer.bin";
    formats::convert_llama2c(options.in, options.tokenizer.empty() ? beside.string() : options.tokenizer,
                             options.out);
  }
  fmt::print("{}\n", options.out);
  return 0;
}

}  // namespace

void add_logits(const Flags& app, Command& run) {
  auto options = std::make_shared<LogitsOptions>();
  const Flags command = app.add_command("logits", "Logits of token ids, as a safetensors file");
  add_model_options(command, options->model);
  command.add_option("--ids-file", options->ids_file, "JSON file: {\"input_ids\": [[...], ...]}")
      .required()
      .value_name("FILE");
  command.add_option("-o,--output", options->output, "Output file: logits [batch, length, vocab] in f32")
      .required()
      .value_name("FILE");
  command.add_option("--chunk", options->chunk, "Compute in chunks of N tokens; default: whole rows")
      .value_name("N");
  command.callback([options, &run] { run = [options] { return logits(*options); }; });
}

void add_convert(const Flags& app, Command& run) {
  auto options = std::make_shared<ConvertOptions>();
  const Flags command = app.add_command(
      "convert",
      "Convert a GGUF file or llama2.c checkpoint to a Hugging Face directory, or a directory to GGUF");
  command.add_option("in", options->in, "GGUF file, model directory, or llama2.c checkpoint (.bin)")
      .required()
      .value_name("IN");
  command.add_option("out", options->out, "Directory, or .gguf file, to write").required().value_name("OUT");
  command
      .add_option(
          "--outtype", options->outtype,
          fmt::format("Type of the matrices: {}, q8_0 (to GGUF only); auto: as they are", kFloatTypes))
      .show_default()
      .value_name("TYPE");
  command
      .add_option("--tokenizer", options->tokenizer,
                  "Tokenizer of a llama2.c checkpoint; default: tokenizer.bin beside it")
      .value_name("FILE");
  command.add_flag("--overwrite", options->overwrite, "Overwrite existing files");
  command.callback([options, &run] { run = [options] { return convert(*options); }; });
}

void add_make_model(const Flags& app, Command& run) {
  struct Options {
    std::string shape;
    std::string out;
    uint64_t seed = 3;
    bool overwrite = false;
  };
  auto options = std::make_shared<Options>();
  const Flags command =
      app.add_command("make-model", "Write a model of a known shape with random weights, for benchmarks");
  std::string names;
  for (const auto& name : formats::model_shape_names())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  command.add_option("shape", options->shape, names)
      .required()
      .one_of(formats::model_shape_names())
      .value_name("SHAPE");
  command.add_option("out", options->out, "Directory to write").required().value_name("DIR");
  command.add_option("--seed", options->seed, "Seed of the weights")
      .show_default()
      .whole_number()
      .value_name("N");
  command.add_flag("--overwrite", options->overwrite, "Overwrite existing files");
  command.callback([options, &run] {
    run = [options] {
      check_output_directory(options->out);
      if (!options->overwrite) refuse_existing(options->out);
      formats::make_model(options->shape, options->out, options->seed);
      fmt::print("{}\n", options->out);
      return 0;
    };
  });
}

}  // namespace quire::cli
