#include "startup/sim_options.h"

#include <algorithm>
#include <string>

#include "base/amounts.h"
#include "startup/model_options.h"
#include "tensor/dtype.h"

namespace quire::startup {
namespace {

bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

/// " word".
bool is_word(const std::string& bytes) {
  return bytes.size() > 1 && bytes[0] == ' ' && std::all_of(bytes.begin() + 1, bytes.end(), is_letter);
}

bool is_printable(const std::string& bytes) {
  return !bytes.empty() &&
         std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

backend::sim::CostModel CostOptions::model() const {
  if (!cost_file.empty()) return backend::sim::read_cost_file(cost_file).cost;
  backend::sim::LinearCost cost;
  cost.step = static_cast<Nanos>(step_us * 1000);
  cost.prefill_tokens_per_ms = prefill_tokens_per_ms;
  cost.decode = static_cast<Nanos>(decode_us * 1000);
  cost.decode_more = static_cast<Nanos>(decode_more_us * 1000);
  cost.swap_block = static_cast<Nanos>(swap_block_us * 1000);
  cost.check();
  return cost;
}

std::string CostOptions::check_for(const backend::sim::CostRun& run) const {
  if (cost_file.empty()) return {};
  return check_cost_file_for(run, backend::sim::read_cost_file(cost_file), cost_file, force);
}

backend::sim::DeviceSetup setup_of(const ModelOutline& model, const NumberFormats& formats) {
  const DType kv = pick_kv_dtype(formats.kv_cache_dtype, model.config.head_dim).value_or(model.config.dtype);
  return {.parameters = with_commas(model.shape.num_parameters),
          .weights = weight_sizes(model, formats.quantization).matrix_formats,
          .kv = kv == DType::kI8 ? "int8" : std::string(dtype_name(kv)),
          .threads = {}};
}

std::vector<TokenId> sayable_tokens(const tokenize::Tokenizer& tokenizer, uint32_t vocab_size) {
  std::vector<TokenId> words;
  std::vector<TokenId> printable;
  std::vector<TokenId> others;
  const size_t size = std::min<size_t>(vocab_size, tokenizer.vocab_size());
  for (size_t i = 0; i < size; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (tokenizer.is_special(id)) continue;
    const std::string bytes = tokenizer.token_bytes(id);
    (is_word(bytes) ? words : is_printable(bytes) ? printable : others).push_back(id);
  }
  // A few words would repeat too often.
  constexpr size_t kEnough = 100;
  if (words.size() >= kEnough) return words;
  return printable.empty() ? others : printable;
}

}  // namespace quire::startup
