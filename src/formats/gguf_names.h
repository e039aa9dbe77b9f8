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

/// What llama.cpp calls a family of models ("general.architecture", which begins its keys), and what it takes
/// for granted of it. Names and the rest follow from the Family. From llama.cpp's convert_hf_to_gguf.py and
/// load_hparams() as of April 2026.
struct GgufFamily {
  std::string_view arch;          // "qwen2"
  std::string_view architecture;  // of config.json: "Qwen2ForCausalLM"
  /// A key below `arch` that is there and not 0 in this family's files only, where several share the name.
  std::string_view telling_key = {};
  /// The rows of Q and K are in the order for a RoPE that turns neighbours.
  bool neighbour_rope = false;
  bool windows = false;         // "attention.sliding_window" is honoured
  uint32_t default_window = 0;  // where the key is absent
  /// Gemma: models of so many layers scale scores by hidden size / heads, others by the head size.
  uint32_t wide_scale_layers = 0;
  uint32_t no_rope_interval = 0;  // SmolLM3: each so-manieth layer has no RoPE

  const model::Family& family() const { return *model::find_family(architecture); }
};

/// Those of one `arch` in the order in which a file is tried for them.
std::span<const GgufFamily> gguf_families();
/// The file's. Throws Error naming the key if there is none or quire does not know it.
const GgufFamily& gguf_family(const Gguf& file);
/// For models of this config.json architecture; null if GGUF has no name for them that quire writes.
const GgufFamily* find_gguf_family(std::string_view architecture);

/// How a tensor's values differ between GGUF and Hugging Face's form.
enum class GgufRole : uint8_t {
  kPlain,
  kQuery,    // rows in the order of neighbour_rope
  kKey,      // the same
  kNorm,     // with 1 added, where the family stores norms less 1
  kExperts,  // the matrices of all experts in one tensor
};

struct HfTensorName {
  std::string text;    // kExperts: up to the expert's index
  std::string behind;  // kExperts: behind the index
  GgufRole role = GgufRole::kPlain;

  std::string of_expert(uint32_t expert) const { return text + std::to_string(expert) + behind; }
};

struct GgufTensorName {
  std::string text;
  GgufRole role = GgufRole::kPlain;
  uint32_t expert = 0;  // kExperts: which slice
};

/// A family's tensors by both names. Immutable and thread-safe.
class GgufTensorNames {
 public:
  /// Below "blk.3." and "model.layers.3.", or of the whole model, without ".weight" and ".bias".
  struct Pair {
    std::string gguf;
    std::string hf;  // kExperts: below the experts' prefix and index
    GgufRole role = GgufRole::kPlain;
  };

  explicit GgufTensorNames(const GgufFamily& family);

  /// "blk.3.attn_q.weight" as "model.layers.3.self_attn.q_proj.weight"; nullopt if the family has no such
  /// tensor. Knows the experts of old files, each a tensor: "blk.3.ffn_up.7.weight".
  std::optional<HfTensorName> hf(std::string_view gguf_name) const;
  /// The reverse, from any of the names that the family's checkpoints have.
  std::optional<GgufTensorName> gguf(std::string_view hf_name) const;

  const std::vector<Pair>& of_layer() const { return layer_; }

 private:
  const model::Family& family_;
  std::vector<Pair> model_;  // of a checkpoint of the first root
  std::vector<Pair> layer_;
};

/// RoPE turns neighbours (2i, 2i + 1) of a head in llama.cpp's order of rows and (i, i + head_dim / 2) in
/// Hugging Face's: where row `row` of the former is in the latter.
inline size_t half_split_row(size_t row, size_t head_dim) {
  const size_t in_head = row % head_dim;
  return row - in_head + in_head / 2 + in_head % 2 * (head_dim / 2);
}

}  // namespace quire::formats
