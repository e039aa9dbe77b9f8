#include "tests/device_on_host/paper.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "backend/cpu/inspect.h"
#include "backend/cuda/launches.h"
#include "backend/machine.h"
#include "base/amounts.h"
#include "startup/roofline.h"
#include "tests/device/measure.h"
#include "tests/device/measure_model.h"

namespace quire::test::fibers {
namespace {

constexpr const char* kCards[] = {"a10g", "a100", "h100", "h200"};
constexpr double kBytes = 2;    // of a bf16
constexpr uint32_t kGroup = 4;  // query heads of a K/V head: what count_attention() has

struct Work {
  std::string what;
  gpu::Needs needs;
  uint32_t launches = 0;
};

/// Microseconds with three digits, or to the tenth.
std::string time_text(double seconds) {
  const double us = seconds * 1e6;
  return us < 99.95 ? fmt::format("{:.1f}", us) : with_commas(static_cast<uint64_t>(us + 0.5));
}

/// "1,234.5", of millions.
std::string mega(double bytes) {
  const auto tenths = static_cast<uint64_t>(bytes * 1e-5 + 0.5);
  return fmt::format("{}.{}", with_commas(tenths / 10), tenths % 10);
}

std::string giga(double operations) {
  const auto hundredths = static_cast<uint64_t>(operations * 1e-7 + 0.5);
  return fmt::format("{}.{:02}", with_commas(hundredths / 100), hundredths % 100);
}

/// The largest of bytes and operations, and launches: a cell for each card.
std::string times(const Work& work) {
  std::string out;
  for (const char* card : kCards) {
    const backend::MachineSpeed& speed = backend::find_machine(card)->speed;
    const double seconds = std::max(work.needs.bytes / speed.bandwidth, work.needs.operations / speed.bf16) +
                           work.launches * speed.launch;
    out += fmt::format(" {} |", time_text(seconds));
  }
  return out;
}

std::string head(const std::string& columns, size_t numbers) {
  std::string out = "| work | " + columns + " | A10G | A100 | H100 | H200 |\n|---|";
  for (size_t i = 0; i < numbers + std::size(kCards); ++i) out += "--:|";
  return out + "\n";
}

// ---- what kernels ask for ----

/// Counted once: it takes seconds.
const Asked& attention_asked(uint32_t head_dim, uint32_t length, uint32_t rows, bool tiled) {
  static std::map<std::tuple<uint32_t, uint32_t, uint32_t, bool>, Asked> known;
  const auto [place, is_new] = known.try_emplace({head_dim, length, rows, tiled});
  if (is_new) place->second = count_attention(head_dim, length, rows, tiled);
  return place->second;
}

/// Of a prompt: what tiles read grows with the square of its length, the rest with the length. Both follow
/// from two short ones; longer ones would take minutes.
Asked count_prompt(uint32_t head_dim, double length) {
  constexpr double kShort = 256;
  const Asked one = attention_asked(head_dim, kShort, kShort, true);
  const Asked two = attention_asked(head_dim, 2 * kShort, 2 * kShort, true);
  const double square = (two.bytes - 2 * one.bytes) / (2 * kShort * kShort);
  const double line = one.bytes / kShort - square * kShort;
  return {.bytes = length * (line + length * square), .launches = one.launches};
}

void add_attention(std::string& out, const gpu::Sizes& sizes, uint32_t dim) {
  const std::string heads = fmt::format("{}/{} heads of {}", sizes.heads, sizes.kv_heads, dim);
  const auto add = [&](const std::string& what, double seqs, double keys, double rows, double pairs,
                       const Asked& asked) {
    const Work work{.what = what + ", " + heads,
                    .needs = {.bytes = kBytes * 2 * seqs * dim * (keys * sizes.kv_heads + rows * sizes.heads),
                              .operations = 4 * seqs * pairs * sizes.heads * dim},
                    .launches = asked.launches};
    out += fmt::format("| {} | {} | {} | {} | {} |{}\n", work.what, mega(work.needs.bytes),
                       mega(asked.bytes * seqs * sizes.kv_heads), giga(work.needs.operations), work.launches,
                       times(work));
  };
  const Asked by_rows = attention_asked(dim, sizes.context, 1, false);
  const Asked tiled = attention_asked(dim, sizes.context, 1, true);
  for (const uint32_t seqs : {1U, 64U}) {
    const std::string what = fmt::format("{} x {}", seqs, with_commas(sizes.context));
    add("decode_attention " + what, seqs, sizes.context, 1, sizes.context, by_rows);
    add("paged_attention " + what, seqs, sizes.context, 1, sizes.context, tiled);
  }
  for (const uint32_t length : sizes.prompts) {
    const double pairs = 0.5 * length * (length + 1.0);
    add(fmt::format("paged_attention, a prompt of {}", with_commas(length)), 1, length, length, pairs,
        count_prompt(dim, length));
  }
}

PaperTable attention_table(const gpu::Sizes& sizes) {
  std::string out = head("MB needed | MB asked | GFLOP | launches", 4);
  for (const uint32_t dim : sizes.head_dims) add_attention(out, sizes, dim);
  return {"attention", out};
}

PaperTable small_table(const gpu::Sizes& sizes) {
  std::string out = head("MB needed | MB asked | launches", 3);
  const auto add = [&](const std::string& what, double needed, double asked, uint32_t launches) {
    const Work work{.what = what, .needs = {.bytes = needed}, .launches = launches};
    out += fmt::format("| {} | {} | {} | {} |{}\n", what, mega(needed), mega(asked), launches, times(work));
  };
  // Each row is a block's, and asks for as much.
  constexpr uint32_t kCounted = 8;
  const uint32_t rows = sizes.norm_rows.back();
  const uint32_t width = sizes.model.hidden_size;
  const Asked norm = count_norm(kCounted, width);
  add(fmt::format("rms_norm with residual, {} x {}", with_commas(rows), with_commas(width)),
      4 * kBytes * rows * width, norm.bytes / kCounted * rows, norm.launches);
  const uint32_t gated_rows = sizes.gated_rows.back();
  const uint32_t ffn = sizes.model.ffn_size;
  const Asked gated = count_gated(kCounted, ffn);
  add(fmt::format("gated (SiLU), {} x {}", with_commas(gated_rows), with_commas(ffn)),
      3 * kBytes * gated_rows * ffn, gated.bytes / kCounted * gated_rows, gated.launches);
  return {"small kernels", out};
}

/// Each row, and each block, asks for as much as another.
PaperTable moving_table(const gpu::Sizes& sizes) {
  std::string out = head("MB needed | MB asked | launches", 3);
  const auto add = [&](const std::string& what, double needed, double times_counted, const Asked& asked) {
    const Work work{.what = what, .needs = {.bytes = needed}, .launches = asked.launches};
    out += fmt::format("| {} | {} | {} | {} |{}\n", what, mega(needed), mega(asked.bytes * times_counted),
                       asked.launches, times(work));
  };
  constexpr uint32_t kCounted = 16;  // a block of tokens
  const model::ModelConfig& model = sizes.model;
  const uint32_t rows = sizes.norm_rows.back();
  const double more = static_cast<double>(rows) / kCounted;
  const uint32_t width = model.hidden_size;
  const uint32_t qkv = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim;
  add(fmt::format("embed, {} x {}", with_commas(rows), with_commas(width)), 2 * kBytes * rows * width, more,
      count_embed(kCounted, width));
  add(fmt::format("rope with the scatter of K and V, {} x {}", with_commas(rows), with_commas(qkv)),
      2 * kBytes * rows * qkv, more, count_rope(model, kCounted));
  add(fmt::format("add, {} x {}", with_commas(rows), with_commas(width)), 3 * kBytes * rows * width, more,
      count_add(kCounted, width));
  const uint32_t copied = sizes.copied_blocks.back();
  const double block = kBytes * 2 * gpu::kBlock * model.num_layers * model.num_kv_heads * model.head_dim;
  add(fmt::format("copy_blocks, {} of {} bytes", copied, with_commas(static_cast<uint64_t>(block))),
      2 * copied * block, copied, count_copy(model));
  const uint32_t sampled = sizes.sampled_rows.back();
  add(fmt::format("greedy, {} x {}", sampled, with_commas(model.vocab_size)),
      1.0 * sizeof(float) * sampled * model.vocab_size, sampled, count_greedy(model.vocab_size));
  return {"moving kernels", out};
}

/// Over the link to the host.
PaperTable swap_table(const gpu::Sizes& sizes) {
  std::string out = head("MB needed", 1);
  const model::ModelConfig& model = sizes.model;
  for (const uint32_t count : sizes.swapped_blocks) {
    const double bytes =
        kBytes * 2 * gpu::kBlock * model.num_layers * model.num_kv_heads * model.head_dim * count;
    out += fmt::format("| {} blocks out, or in | {} |", count, mega(bytes));
    for (const char* card : kCards) {
      out += fmt::format(" {} |", time_text(bytes / backend::find_machine(card)->speed.host_link));
    }
    out += "\n";
  }
  return {"swap", out};
}

PaperTable gemm_table(const gpu::Sizes& sizes) {
  std::string out = head("MB needed | GFLOP | launches", 3);
  const model::ModelConfig& model = sizes.model;
  const uint32_t q = model.num_heads * model.head_dim;
  const uint32_t kv = model.num_kv_heads * model.head_dim;
  struct Product {
    const char* name;
    uint32_t n;
    uint32_t k;
    double result;  // bytes of an element
  };
  for (const Product& product : {Product{"qkv", q + 2 * kv, model.hidden_size, kBytes},
                                 {"o", model.hidden_size, q, kBytes},
                                 {"gate and up", 2 * model.ffn_size, model.hidden_size, kBytes},
                                 {"down", model.hidden_size, model.ffn_size, kBytes},
                                 {"head", model.vocab_size, model.hidden_size, sizeof(float)}}) {
    const double elements = static_cast<double>(product.n) * product.k;
    for (const uint32_t rows : sizes.gemm_rows) {
      const Work work{
          .what = fmt::format("{} ({} x {}), {} rows", product.name, with_commas(product.n),
                              with_commas(product.k), rows),
          .needs = {.bytes = kBytes * (elements + 1.0 * rows * product.k) + product.result * rows * product.n,
                    .operations = 2 * elements * rows},
          .launches = 1};
      out += fmt::format("| {} | {} | {} | 1 |{}\n", work.what, mega(work.needs.bytes),
                         giga(work.needs.operations), times(work));
      for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
        const Work one{
            .what = fmt::format("{} as {}, {} rows", product.name, weight_format_name(format), rows),
            .needs = gpu::integer_product_needs(format, product.n, product.k, rows, product.result),
            .launches = 1};
        out += fmt::format("| {} | {} | {} | 1 |{}\n", one.what, mega(one.needs.bytes),
                           giga(one.needs.operations), times(one));
      }
    }
  }
  return {"products", out};
}

/// Of rows that choose at random, so many experts differ.
double different_experts(const gpu::ExpertSizes& of, uint32_t rows) {
  return of.count * (1 - std::pow(1 - static_cast<double>(of.top) / of.count, rows));
}

PaperTable expert_table(const gpu::Sizes& sizes) {
  std::string out = head("MB needed | GFLOP | launches", 3);
  const gpu::ExpertSizes& of = sizes.experts;
  for (const gpu::ExpertProduct& product : gpu::expert_products(of)) {
    for (const uint32_t rows : of.rows) {
      const Work work{.what = gpu::expert_product_name(of, product, rows),
                      .needs = gpu::expert_product_needs(of, product, rows, different_experts(of, rows)),
                      .launches = 1};
      out += fmt::format("| {} | {} | {} | 1 |{}\n", work.what, mega(work.needs.bytes),
                         giga(work.needs.operations), times(work));
    }
  }
  return {"experts", out};
}

// ---- whole steps: the simulator's roofline ----

backend::StepWork work_of(const gpu::Step& step) {
  const uint64_t before = step.length - step.tokens;
  if (step.tokens == 1) {
    return {.decoding = step.seqs, .decode_context = step.seqs * before, .logit_rows = step.seqs};
  }
  const uint64_t tokens = uint64_t{step.seqs} * step.tokens;
  return {.chunks = step.seqs,
          .prefill_tokens = tokens,
          .chunk_squares = tokens * step.tokens,
          .chunk_prefix = tokens * before,
          .logit_rows = step.seqs};
}

PaperTable step_table(const gpu::Sizes& sizes) {
  std::string out = head("MB needed | GFLOP | launches", 3);
  const backend::ModelShape shape = backend::cpu::model_shape(sizes.model, DType::kBF16);
  const backend::cpu::WeightSizes weights = backend::cpu::weight_sizes(sizes.model, WeightFormat::kBF16);
  const auto roofline = [&](const char* card) {
    return startup::roofline_of(sizes.model, shape, weights, backend::find_machine(card)->speed, 16);
  };
  for (const gpu::Step& step : sizes.steps) {
    const backend::StepWork work = work_of(step);
    const backend::sim::RooflineCost any = roofline(kCards[0]);
    const auto attention = any.attention_of(work);
    out += fmt::format("| {} x {} tokens, contexts of {} | {} | {} | {} |", step.seqs,
                       with_commas(step.tokens), with_commas(step.length), mega(any.bytes(work, attention)),
                       giga(any.ops(work, attention)), backend::cuda::step_launches(sizes.model));
    for (const char* card : kCards) {
      out += fmt::format(" {} |", time_text(static_cast<double>(roofline(card).duration(work)) * 1e-9));
    }
    out += "\n";
  }
  return {"steps", out};
}

PaperTable count_table() {
  std::string out = "| work | bytes needed | bytes asked | launches |\n|---|--:|--:|--:|\n";
  const auto add = [&](const std::string& what, uint64_t needed, const Asked& asked) {
    out += fmt::format("| {} | {} | {} | {} |\n", what, with_commas(needed),
                       with_commas(static_cast<uint64_t>(asked.bytes)), asked.launches);
  };
  const auto attention = [](uint64_t keys, uint64_t rows) { return 2 * 2 * 64 * (keys + kGroup * rows); };
  add("decode_attention 1 x 4,096, 4/1 heads of 64", attention(4096, 1), attention_asked(64, 4096, 1, false));
  add("paged_attention 1 x 4,096, 4/1 heads of 64", attention(4096, 1), attention_asked(64, 4096, 1, true));
  add("paged_attention, a prompt of 512, 4/1 heads of 64", attention(512, 512),
      attention_asked(64, 512, 512, true));
  add("rms_norm with residual, 8 x 2,048", uint64_t{4} * 2 * 8 * 2048, count_norm(8, 2048));
  add("gated (SiLU), 8 x 8,192", uint64_t{3} * 2 * 8 * 8192, count_gated(8, 8192));
  return {"counts", out};
}

}  // namespace

std::vector<PaperTable> paper_tables() {
  const gpu::Sizes sizes;
  return {count_table(),     attention_table(sizes), small_table(sizes),  moving_table(sizes),
          swap_table(sizes), gemm_table(sizes),      expert_table(sizes), step_table(sizes)};
}

}  // namespace quire::test::fibers
