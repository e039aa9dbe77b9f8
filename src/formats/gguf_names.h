#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "model/families.h"

namespace quire::formats {

/// llama.cpp's name of a model family ("general.architecture", the prefix of its keys), and what llama.cpp
/// assumes of the family. Everything else follows from the Family. From convert_hf_to_gguf.py and
/// load_hparams() of llama.cpp as of April 2026.
struct GgufFamily {
  std::string_view arch;          // "qwen2"
  std::string_view architecture;  // in config.json: "Qwen2ForCausalLM"
  /// If several families share `arch`: a key below it that only this family's files have with a value other
  /// than 0.
  std::string_view telling_key = {};
  /// Whether the rows of Q and K are in the order for a RoPE that rotates neighbours.
  bool neighbour_rope = false;
  bool windows = false;         // whether "attention.sliding_window" is used
  uint32_t default_window = 0;  // if the key is absent
  /// Gemma: models with this many layers scale scores by hidden size / heads, others by the head size.
  uint32_t wide_scale_layers = 0;
  uint32_t no_rope_interval = 0;  // SmolLM3: every n-th layer has no RoPE

  const model::Family& family() const { return *model::find_family(architecture); }
};

/// Families with the same `arch` are in the order in which they are tried for a file.
std::span<const GgufFamily> gguf_families();
/// The family of the file. Throws Error naming the key if it is absent or quire does not know its value.
const GgufFamily& gguf_family(const Gguf& file);
/// The family for this config.json architecture; null if quire cannot write it as GGUF.
const GgufFamily* find_gguf_family(std::string_view architecture);

/// How the values of a tensor differ between the GGUF and the Hugging Face form.
enum class GgufRole : uint8_t {
  kPlain,
  kQuery,    // rows are in the order of neighbour_rope
  kKey,      // the same
  kNorm,     // 1 is added if the family stores norms minus 1
  kExperts,  // the matrices of all experts in one tensor
};

struct HfTensorName {
  std::string text;    // kExperts: the part before the expert's index
  std::string behind;  // kExperts: the part after the index
  GgufRole role = GgufRole::kPlain;

  std::string of_expert(uint32_t expert) const { return text + std::to_string(expert) + behind; }
};

struct GgufTensorName {
  std::string text;
  GgufRole role = GgufRole::kPlain;
  uint32_t expert = 0;  // kExperts: which slice
};

/// The tensors of a family by both names. Immutable and thread-safe.
class GgufTensorNames {
 public:
  /// The parts after "blk.3." and "model.layers.3.", or the names of tensors outside layers; without
  /// ".weight" and ".bias".
  struct Pair {
    std::string gguf;
    std::string hf;  // kExperts: the part after the experts' prefix and index
    GgufRole role = GgufRole::kPlain;
  };

  explicit GgufTensorNames(const GgufFamily& family);

  /// "blk.3.attn_q.weight" as "model.layers.3.self_attn.q_proj.weight"; nullopt if the family has no such
  /// tensor. Also knows the experts of old files, with one tensor each: "blk.3.ffn_up.7.weight".
  std::optional<HfTensorName> hf(std::string_view gguf_name) const;
  /// The reverse, from any of the names that the family's checkpoints have.
  std::optional<GgufTensorName> gguf(std::string_view hf_name) const;

  const std::vector<Pair>& of_layer() const { return layer_; }

 private:
  const model::Family& family_;
  std::vector<Pair> model_;  // for a checkpoint with the first root
  std::vector<Pair> layer_;
};

/// RoPE rotates neighbours (2i, 2i + 1) of a head in llama.cpp's order of rows, and (i, i + head_dim / 2) in
/// Hugging Face's. Returns the place of row `row` of the former in the latter.
inline size_t half_split_row(size_t row, size_t head_dim) {
  const size_t in_head = row % head_dim;
  return row - in_head + in_head / 2 + in_head % 2 * (head_dim / 2);
}

}  // namespace quire::formats
