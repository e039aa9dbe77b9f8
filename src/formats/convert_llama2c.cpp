#include "formats/convert_llama2c.h"

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "formats/json_file.h"
#include "formats/llama2c_tokenizer.h"
#include "formats/mapped_file.h"
#include "formats/safetensors_writer.h"

namespace quire::formats {
namespace {

constexpr uint32_t kVersionedMagic = 0x616b3432;  // "ak42", from version 1 on
constexpr uint64_t kNewHeaderBytes = 256;

/// The place of one tensor in the checkpoint.
struct Place {
  uint64_t offset = 0;
  uint64_t rows = 0;
  uint64_t cols = 0;
  bool quantized = false;

  uint64_t count() const { return rows * cols; }
};

enum class Kind { kAttNorm, kFfnNorm, kFinalNorm, kEmbedding, kQ, kK, kV, kO, kGate, kUp, kDown, kHead };

class Llama2cFile {
 public:
  explicit Llama2cFile(const std::filesystem::path& path) : file_(path) {
    read_header();
    if (version_ == 0) {
      lay_out_version_0();
    } else {
      lay_out_later();
    }
    if (end_ != file_.size()) {
      throw file_error(path,
                       fmt::format("the file has {} bytes, but its header says {}", file_.size(), end_));
    }
  }

  uint32_t dim = 0, hidden_dim = 0, layers = 0, heads = 0, kv_heads = 0, vocab = 0, seq_len = 0;
  bool shared_head = true;

  uint32_t head_dim() const { return dim / heads; }
  const Place& place(Kind kind, uint32_t layer) const { return places_[static_cast<size_t>(kind)][layer]; }

  std::vector<float> values(const Place& place) const {
    std::vector<float> out(place.count());
    const std::byte* from = file_.data() + place.offset;
    if (!place.quantized) {
      std::memcpy(out.data(), from, place.count() * sizeof(float));
      return out;
    }
    for (uint64_t i = 0; i < place.count(); ++i) {
      float scale = 0.0F;
      std::memcpy(&scale, from + place.count() + i / group_size_ * sizeof(float), sizeof(scale));
      out[i] = scale * static_cast<float>(static_cast<int8_t>(from[i]));
    }
    return out;
  }

 private:
  /// The error for an invalid header; without a magic number the file probably has no header at all.
  Error header_error(uint64_t offset, std::string_view what) const {
    if (version_ > 0) return file_error(file_.path(), offset, fmt::format("the header {}", what));
    return file_error(file_.path(),
                      fmt::format("is not a model: neither a directory with a config.json, nor a "
                                  "GGUF file, nor a llama2.c checkpoint (whose header {})",
                                  what));
  }

  int32_t integer_at(uint64_t offset) const {
    int32_t value = 0;
    if (offset + sizeof(value) > file_.size()) throw header_error(offset, "ends early");
    std::memcpy(&value, file_.data() + offset, sizeof(value));
    return value;
  }

  uint32_t size_at(uint64_t offset, const char* name) const {
    constexpr int32_t kMaxSize = 1 << 24;
    const int32_t value = integer_at(offset);
    if (value < 1 || value > kMaxSize) {
      throw header_error(offset, fmt::format("has {} {}, out of range", name, value));
    }
    return static_cast<uint32_t>(value);
  }

  void read_header() {
    uint64_t at = 0;
    if (static_cast<uint32_t>(integer_at(0)) == kVersionedMagic) {
      version_ = integer_at(4);
      if (version_ != 1 && version_ != 2) {
        throw file_error(file_.path(), uint64_t{4},
                         fmt::format("version {} of the format is not supported (0, 1, 2)", version_));
      }
      at = 8;
    }
    dim = size_at(at, "dim");
    hidden_dim = size_at(at + 4, "hidden_dim");
    layers = size_at(at + 8, "n_layers");
    heads = size_at(at + 12, "n_heads");
    kv_heads = size_at(at + 16, "n_kv_heads");
    const uint64_t vocab_at = at + 20;
    seq_len = size_at(at + 24, "max_seq_len");
    end_ = at + 28;
    if (version_ == 0) {
      // A negative vocabulary size means that the file also has the output matrix.
      const int32_t signed_vocab = integer_at(vocab_at);
      shared_head = signed_vocab > 0;
      vocab = shared_head ? size_at(vocab_at, "vocab_size") : 0U - static_cast<uint32_t>(signed_vocab);
    } else {
      vocab = size_at(vocab_at, "vocab_size");
      if (file_.size() < kNewHeaderBytes) throw header_error(file_.size(), "ends early");
      shared_head = file_.data()[end_] != std::byte{0};
      if (version_ == 2) group_size_ = size_at(end_ + 1, "group_size");
      end_ = kNewHeaderBytes;
    }
    const bool plausible = vocab > 0 && vocab < (1U << 24) && dim % heads == 0 && heads % kv_heads == 0 &&
                           head_dim() % 2 == 0 && layers < (1U << 12);
    if (!plausible) {
      throw header_error(at, fmt::format("has dim {}, {} layers, {} heads, {} kv heads, vocabulary {}", dim,
                                         layers, heads, kv_heads, vocab));
    }
  }

  /// `count` tensors of [rows, cols] follow. Sizes stay below 2^24, so that no product overflows; the check
  /// against the file's size ends the rest.
  void add(Kind kind, uint32_t count, uint64_t rows, uint64_t cols, bool quantized) {
    auto& places = places_[static_cast<size_t>(kind)];
    for (uint32_t i = 0; i < count; ++i) {
      places.push_back({end_, rows, cols, quantized});
      const uint64_t elements = rows * cols;
      if (quantized && elements % group_size_ != 0) {
        throw file_error(
            file_.path(), end_,
            fmt::format("{} values are not a multiple of the group size {}", elements, group_size_));
      }
      end_ += quantized ? elements + elements / group_size_ * sizeof(float) : elements * sizeof(float);
      if (end_ > file_.size()) {
        throw file_error(file_.path(), fmt::format("the file has {} bytes, but its header says at least {}",
                                                   file_.size(), end_));
      }
    }
  }

  void add_matrices(bool quantized) {
    const uint64_t kv_dim = uint64_t{kv_heads} * head_dim();
    add(Kind::kQ, layers, dim, dim, quantized);
    add(Kind::kK, layers, kv_dim, dim, quantized);
    add(Kind::kV, layers, kv_dim, dim, quantized);
    add(Kind::kO, layers, dim, dim, quantized);
  }

  void add_ffn(bool quantized) {
    add(Kind::kGate, layers, hidden_dim, dim, quantized);
    add(Kind::kDown, layers, dim, hidden_dim, quantized);
    add(Kind::kUp, layers, hidden_dim, dim, quantized);
  }

  void lay_out_version_0() {
    add(Kind::kEmbedding, 1, vocab, dim, false);
    add(Kind::kAttNorm, layers, dim, 1, false);
    add_matrices(false);
    add(Kind::kFfnNorm, layers, dim, 1, false);
    add_ffn(false);
    add(Kind::kFinalNorm, 1, dim, 1, false);
    end_ += uint64_t{seq_len} * head_dim() * sizeof(float);  // tables of cosines and sines, not needed
    if (!shared_head) add(Kind::kHead, 1, vocab, dim, false);
  }

  void lay_out_later() {
    const bool quantized = version_ == 2;
    add(Kind::kAttNorm, layers, dim, 1, false);
    add(Kind::kFfnNorm, layers, dim, 1, false);
    add(Kind::kFinalNorm, 1, dim, 1, false);
    add(Kind::kEmbedding, 1, vocab, dim, quantized);
    add_matrices(quantized);
    add_ffn(quantized);
    if (!shared_head) add(Kind::kHead, 1, vocab, dim, quantized);
  }

  MappedFile file_;
  int32_t version_ = 0;
  uint32_t group_size_ = 1;
  uint64_t end_ = 0;
  std::vector<Place> places_[static_cast<size_t>(Kind::kHead) + 1];
};

/// llama2.c rotates neighbours (2i, 2i + 1) of a head, Hugging Face checkpoints (i, i + head_dim / 2): the
/// same rotation once the rows of Q and K are put in the other order.
std::vector<float> rows_half_split(const std::vector<float>& rows, uint64_t head_dim, uint64_t cols) {
  std::vector<float> out(rows.size());
  for (uint64_t row = 0; row * cols < rows.size(); ++row) {
    const uint64_t in_head = row % head_dim;
    const uint64_t to = row - in_head + in_head / 2 + (in_head % 2) * (head_dim / 2);
    std::memcpy(&out[to * cols], &rows[row * cols], cols * sizeof(float));
  }
  return out;
}

struct Output {
  std::string name;
  Kind kind;
  uint32_t layer;
};

std::vector<Output> outputs(const Llama2cFile& in) {
  std::vector<Output> out = {{"model.embed_tokens.weight", Kind::kEmbedding, 0}};
  for (uint32_t layer = 0; layer < in.layers; ++layer) {
    for (const auto& [name, kind] :
         {std::pair("input_layernorm", Kind::kAttNorm), std::pair("self_attn.q_proj", Kind::kQ),
          std::pair("self_attn.k_proj", Kind::kK), std::pair("self_attn.v_proj", Kind::kV),
          std::pair("self_attn.o_proj", Kind::kO), std::pair("post_attention_layernorm", Kind::kFfnNorm),
          std::pair("mlp.gate_proj", Kind::kGate), std::pair("mlp.up_proj", Kind::kUp),
          std::pair("mlp.down_proj", Kind::kDown)}) {
      out.push_back({fmt::format("model.layers.{}.{}.weight", layer, name), kind, layer});
    }
  }
  out.push_back({"model.norm.weight", Kind::kFinalNorm, 0});
  if (!in.shared_head) out.push_back({"lm_head.weight", Kind::kHead, 0});
  return out;
}

bool is_norm(Kind kind) {
  return kind == Kind::kAttNorm || kind == Kind::kFfnNorm || kind == Kind::kFinalNorm;
}

void write_weights(const Llama2cFile& in, const std::filesystem::path& path) {
  const std::vector<Output> tensors = outputs(in);
  std::vector<TensorSpec> specs;
  for (const Output& tensor : tensors) {
    const Place& place = in.place(tensor.kind, tensor.layer);
    TensorSpec spec{tensor.name, DType::kF32, {static_cast<int64_t>(place.rows)}};
    if (!is_norm(tensor.kind)) spec.shape.push_back(static_cast<int64_t>(place.cols));
    specs.push_back(std::move(spec));
  }
  SafetensorsWriter writer(path, specs, {{"format", "pt"}});
  for (const Output& tensor : tensors) {
    const Place& place = in.place(tensor.kind, tensor.layer);
    std::vector<float> values = in.values(place);
    if (tensor.kind == Kind::kQ || tensor.kind == Kind::kK) {
      values = rows_half_split(values, in.head_dim(), place.cols);
    }
    writer.append(std::as_bytes(std::span(values)));
  }
  writer.finish();
}

}  // namespace

void convert_llama2c(const std::filesystem::path& checkpoint, const std::filesystem::path& tokenizer,
                     const std::filesystem::path& out_dir) {
  const Llama2cFile in(checkpoint);
  const json::object tokenizer_json = llama2c_tokenizer_json(tokenizer, in.vocab);
  make_directory(out_dir);
  write_weights(in, out_dir / "model.safetensors");
  write_json_file(out_dir / "tokenizer.json", tokenizer_json);
  write_json_file(out_dir / "tokenizer_config.json", {{"bos_token", "<s>"},
                                                      {"eos_token", "</s>"},
                                                      {"unk_token", "<unk>"},
                                                      {"clean_up_tokenization_spaces", false},
                                                      {"model_max_length", in.seq_len},
                                                      {"tokenizer_class", "PreTrainedTokenizerFast"}});
  write_json_file(out_dir / "generation_config.json", {{"bos_token_id", 1}, {"eos_token_id", 2}});
  // RMSNorm's epsilon and RoPE's base are constants of llama2.c's run.c.
  write_json_file(out_dir / "config.json", {{"architectures", json::array{"LlamaForCausalLM"}},
                                            {"model_type", "llama"},
                                            {"attention_bias", false},
                                            {"bos_token_id", 1},
                                            {"eos_token_id", 2},
                                            {"head_dim", in.head_dim()},
                                            {"hidden_act", "silu"},
                                            {"hidden_size", in.dim},
                                            {"intermediate_size", in.hidden_dim},
                                            {"max_position_embeddings", in.seq_len},
                                            {"mlp_bias", false},
                                            {"num_attention_heads", in.heads},
                                            {"num_hidden_layers", in.layers},
                                            {"num_key_value_heads", in.kv_heads},
                                            {"rms_norm_eps", 1e-5},
                                            {"rope_scaling", nullptr},
                                            {"rope_theta", 10000.0},
                                            {"tie_word_embeddings", in.shared_head},
                                            {"torch_dtype", "float32"},
                                            {"vocab_size", in.vocab}});
}

}  // namespace quire::formats
