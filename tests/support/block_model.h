#pragma once

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "formats/gguf_writer.h"
#include "tests/support/ggml_blocks.h"

namespace quire::test {

/// Which type a matrix has in the file, by its name there.
using TypeOf = std::function<std::string_view(std::string_view tensor)>;

inline const formats::GgmlType& ggml_type(std::string_view name) {
  for (const formats::GgmlType& type : formats::ggml_types()) {
    if (type.name == name) return type;
  }
  throw std::invalid_argument(std::string(name));
}

/// Values of a type as a file has them, the blocks of quantized ones at random.
inline std::vector<std::byte> random_values(const formats::GgmlType& type, uint64_t seed, size_t count) {
  for (const WeightFormat format : kGgmlFormats) {
    // So that weights are some hundredths: integers reach to 128, 8, 15 * 63 and 32 * 128 with the small
    // scales.
    const float scale = format == WeightFormat::kQ8_0   ? 0.0003F
                        : format == WeightFormat::kQ4_0 ? 0.005F
                        : format == WeightFormat::kQ4_K ? 0.00005F
                                                        : 0.000015F;
    if (type.name == weight_format_name(format)) {
      return random_blocks(seed, format, count / type.block_values, scale);
    }
  }
  std::vector<std::byte> out(count / type.block_values * type.block_bytes);
  SplitMix64 rng(seed);
  for (size_t i = 0; i < out.size(); i += type.block_bytes) {
    if (type.id == formats::kGgmlF32) {
      const auto value = static_cast<float>(unit_interval(rng.next()) * 0.2 - 0.1);
      std::memcpy(out.data() + i, &value, sizeof(value));
      continue;
    }
    // Small f16 numbers, and of Q4_1, Q5_1 and Q5_K the minima, which are in the second, zero.
    for (size_t j = 0; j < type.block_bytes; ++j) out[i + j] = static_cast<std::byte>(rng.next());
    const uint16_t half = f32_to_f16(0.00005F);
    std::memcpy(out.data() + i, &half, sizeof(half));
    if (type.block_bytes > 4) std::memset(out.data() + i + 2, 0, 2);
  }
  return out;
}

/// A Llama of two layers whose rows fill ggml's largest blocks, as a GGUF file; of experts if there are any.
inline void write_block_model(const std::filesystem::path& path, const TypeOf& type_of,
                              uint32_t experts = 0) {
  constexpr uint32_t kLayers = 2;
  formats::GgufMetadata metadata;
  metadata.add("general.architecture", "llama");
  for (const auto& [key, value] :
       {std::pair("context_length", 512U), std::pair("embedding_length", 256U),
        std::pair("block_count", kLayers), std::pair("feed_forward_length", 512U),
        std::pair("attention.head_count", 4U), std::pair("attention.head_count_kv", 2U)}) {
    metadata.add(fmt::format("llama.{}", key), value);
  }
  metadata.add("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  if (experts > 0) {
    metadata.add("llama.expert_count", experts);
    metadata.add("llama.expert_used_count", 2U);
  }
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {{"token_embd.weight", {300, 256}}};
  const std::vector<int64_t> up = {512, 256};
  const std::vector<int64_t> down = {256, 512};
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const auto add = [&](std::string_view name, std::vector<int64_t> shape) {
      if (experts > 0 && name.ends_with("_exps")) shape.insert(shape.begin(), experts);
      tensors.emplace_back(fmt::format("blk.{}.{}.weight", layer, name), std::move(shape));
    };
    add("attn_norm", {256});
    add("attn_q", {256, 256});
    add("attn_k", {128, 256});
    add("attn_v", {128, 256});
    add("attn_output", {256, 256});
    add("ffn_norm", {256});
    if (experts > 0) add("ffn_gate_inp", {experts, 256});
    add(experts > 0 ? "ffn_gate_exps" : "ffn_gate", up);
    add(experts > 0 ? "ffn_up_exps" : "ffn_up", up);
    add(experts > 0 ? "ffn_down_exps" : "ffn_down", down);
  }
  tensors.emplace_back("output_norm.weight", std::vector<int64_t>{256});
  tensors.emplace_back("output.weight", std::vector<int64_t>{300, 256});
  std::vector<formats::GgufTensorSpec> specs;
  for (const auto& [name, shape] : tensors) {
    const bool plain = shape.size() == 1 || name.find("gate_inp") != name.npos;
    specs.push_back({name, &ggml_type(plain ? "F32" : type_of(name)), shape});
  }
  uint64_t seed = 0;
  formats::GgufWriter writer(path, metadata, specs);
  for (const formats::GgufTensorSpec& spec : specs) {
    size_t count = 1;
    for (const int64_t dim : spec.shape) count *= static_cast<size_t>(dim);
    if (spec.shape.size() == 1) {
      const std::vector<float> ones(count, 1.0F);
      writer.append(std::as_bytes(std::span(ones)));
    } else {
      writer.append(random_values(*spec.type, ++seed, count));
    }
  }
  writer.finish();
}

}  // namespace quire::test
