#include "tests/fuzz/targets.h"

#include <algorithm>
#include <array>

namespace quire::fuzz {
namespace {

constexpr std::array kTargets = {
    Target{"safetensors", safetensors, 4096},
    Target{"gguf", gguf, 4096},
    Target{"config", model_config, 4096},
    Target{"tokenizer.json", tokenizer_json, 8192},
    Target{"tokenizer.model", tokenizer_model, 8192},
    Target{"template", template_source, 8192},
    Target{"template-render", template_render, 8192},
    Target{"http", http_request, 256 << 10},  // chunks, extensions and trailers beyond every limit
    Target{"json-body", json_body, 4096},
    Target{"schema", schema, 64 << 10},  // what is small may be large once it is put together
    Target{"grammar-text", grammar_text, 8192},
    Target{"decision-log", decision_log, 8192},
    Target{"safetensors-index", safetensors_index, 8192},
    Target{"llama2c", llama2c, 16384},
    Target{"tokenizer-config", tokenizer_config, 8192},
    Target{"prefix-file", prefix_file, 16384},
    Target{"pack-cache", pack_cache, 16384},
    Target{"trace", trace, 4096},
    Target{"cost-file", cost_file, 8192},
    Target{"step-log", step_log, 4096},
};

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* find_target(std::string_view name) {
  const auto found = std::find_if(kTargets.begin(), kTargets.end(),
                                  [&](const Target& target) { return target.name == name; });
  return found == kTargets.end() ? nullptr : &*found;
}

}  // namespace quire::fuzz
