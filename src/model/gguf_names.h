#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "load/gguf.h"

namespace quire {

/// The same tensor (or family of tensors) in GGUF and in Hugging Face's terms, without ".weight" and ".bias".
struct GgufName {
  std::string_view gguf;
  std::string_view hf;
};

/// What llama.cpp calls a family of models: "general.architecture", which begins its keys, and its tensors.
struct GgufFamily {
  std::string_view arch;          // "qwen2"
  std::string_view architecture;  // of config.json: "Qwen2ForCausalLM"
  std::string_view model_type;
  std::span<const GgufName> tensors;        // of the whole model
  std::span<const GgufName> layer_tensors;  // below "blk.0." and "model.layers.0."
  /// The rows of Q and K are in the order for a RoPE that turns neighbours (llama.cpp's for Llama).
  bool neighbour_rope;
};

std::span<const GgufFamily> gguf_families();
/// The file's. Throws Error naming the key if there is none or quire does not know it.
const GgufFamily& gguf_family(const Gguf& file);
/// For models of this config.json architecture; null if GGUF has no name for them that quire writes.
const GgufFamily* find_gguf_family(std::string_view architecture);

struct HfTensorName {
  std::string text;
  bool is_q = false;  // weight or bias of the query projection
  bool is_k = false;
};

/// "blk.3.attn_q.weight" as "model.layers.3.self_attn.q_proj.weight"; nullopt if the family has no such
/// tensor.
std::optional<HfTensorName> hf_tensor_name(const GgufFamily& family, std::string_view gguf_name);
/// The reverse.
std::optional<std::string> gguf_tensor_name(const GgufFamily& family, std::string_view hf_name);

/// RoPE turns neighbours (2i, 2i + 1) of a head in llama.cpp's order of rows and (i, i + head_dim / 2) in
/// Hugging Face's: where row `row` of the former is in the latter.
inline size_t half_split_row(size_t row, size_t head_dim) {
  const size_t in_head = row % head_dim;
  return row - in_head + in_head / 2 + in_head % 2 * (head_dim / 2);
}

/// The factors by which Llama 3's RoPE stretches each wave.
inline constexpr std::string_view kRopeFactorsTensor = "rope_freqs.weight";

}  // namespace quire
